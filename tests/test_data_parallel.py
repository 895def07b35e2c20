"""Data parallelism under torchrun: the same losses as one process, and a rank that fails ends the job."""

import json

import pytest

from processes import HERE, outcomes, torchrun
from ranks_data_parallel import CHECKS
from test_examples import EXAMPLES, load


@pytest.fixture(scope="module")
def went(tmp_path_factory):
    return outcomes(HERE / "ranks_data_parallel.py", tmp_path_factory.mktemp("data_parallel"))


@pytest.mark.parametrize("check", CHECKS)
def test_as_one_process(went, check):
    assert went.get(check) == ["ok", "ok"], "\n".join(went.get(check, ["not reached"]))


@pytest.mark.parametrize(
    "what, words",
    [
        ("data_parallel", "SteadyStateError: the search for the steady state"),
        ("divided", "KeyError: 'the third call of F on rank 1'"),
    ],
)
def test_a_rank_that_raises_ends_the_job(what, words):
    job = torchrun(HERE / "ranks_failing.py", what)
    assert job.code != 0
    assert words in job.printed, job.printed[-3000:]
    assert "rank1" in job.printed.replace(" ", "").replace(":", ""), job.printed[-3000:]


@pytest.mark.parametrize("edges", [20_000, pytest.param(None, marks=pytest.mark.slow, id="pubmed")])
def test_sharded_graph_of_the_examples(edges, tmp_path):
    whole = load("sharded_graph").train(2, edges, None)
    size = [] if edges is None else ["--edges", edges]
    job = torchrun(EXAMPLES / "sharded_graph.py", *size, "--epochs", 2, "--json", tmp_path)
    assert job.code == 0, job.printed
    parts = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("rank*.json"))]
    assert sum(part["edges"] for part in parts) == whole["edges"]
    for part in parts:
        assert part["losses"] == pytest.approx(whole["losses"], rel=1e-5)
        assert part["calls"] == whole["calls"]
        assert part["bytes_a_call"] > 0
