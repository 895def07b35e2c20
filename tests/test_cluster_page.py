"""The figures of docs/cluster.md are those of benchmarks/cluster.json, and the model behind them says what it should."""

import json
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import cluster, cluster_model  # noqa: E402
from benchmarks.cluster_model import Link, Model, halo_bytes  # noqa: E402

RECORD = json.loads(cluster.RECORD.read_text())


def test_page_shows_the_record(tmp_path):
    copy = tmp_path / "cluster.md"
    copy.write_text(cluster.PAGE.read_text())
    cluster_model.write_page(RECORD, copy)
    assert copy.read_text() == cluster.PAGE.read_text(), "run python -m benchmarks.cluster --page"


def test_page_without_a_place_for_a_table_is_refused(tmp_path):
    (tmp_path / "page.md").write_text("nothing")
    with pytest.raises(ValueError, match="no place for the table gradients"):
        cluster_model.write_page(RECORD, tmp_path / "page.md")


def test_fit_finds_the_link():
    link = Link(2e-4, 1e9)
    found = Link.fitted([[size, link.seconds(1, size)] for size in (8, 1e4, 1e6, 1e8)])
    assert math.isclose(found.latency, 2e-4, rel_tol=1e-6)
    assert math.isclose(found.bandwidth, 1e9, rel_tol=1e-6)


def test_halo_is_what_two_processes_sent():
    for edges in cluster.EDGES:
        for part in RECORD[str(edges)]["found"]["2"]:
            assert math.isclose(halo_bytes(edges, 2), part["bytes_a_call"], rel_tol=0.05)
    assert halo_bytes(10**7, 1) == 0


def test_losses_of_the_record_do_not_depend_on_processes():
    for name in ("pubmed", *map(str, cluster.EDGES)):
        found = RECORD[name]["found"]
        for part in found["2"]:
            assert part["losses"] == pytest.approx(found["1"][0]["losses"], rel=1e-5)


def test_more_ranks_compute_less_and_exchange_more():
    model = Model.of(RECORD)
    few, many = model.parts(10**9, 8), model.parts(10**9, 64)
    assert many["compute"] == pytest.approx(few["compute"] / 8)
    assert many["reduce"] > few["reduce"] > 0
    assert many["megabytes"] < few["megabytes"]
