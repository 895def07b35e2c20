"""The benchmarks run in a tiny setting, leave complete records, and the page is made from those. Nothing here is timed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import speed_numbers  # noqa: E402
from benchmarks import BENCHMARKS, compared, figures, frame, store, tables  # noqa: E402
from benchmarks.frame import EFFORTS, Row, race  # noqa: E402
from benchmarks.growth import exponent  # noqa: E402

ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
TINY = EFFORTS["tiny"]
IN_SECONDS = [
    "fixed_counts",
    "default_call",
    "batches",
    "compiled",
    "denormals",
    "peer_seconds",
    "growth",
    "warm_start",
    "gradient_error",
    "wrong_gradient",
    "time_spent",
]


def measured(name, rows=None):
    """Records of a benchmark's rows, run here with the tiny effort."""
    module = __import__(f"benchmarks.{name}", fromlist=["rows"])
    found = [row for row in module.rows(TINY) if rows is None or row.name in rows]
    assert found
    return {
        f"{name}/{row.name}": {
            "benchmark": name,
            "row": row.name,
            "what": row.what,
            "effort": "tiny",
            "seconds": 0.0,
            "when": "2026-01-01T00:00:00",
            "machine": {"processor": "p", "cores": 2, "threads": 1, "load": 0.0},
            "versions": {"steadygrad": "0"},
            "figures": json.loads(json.dumps(row.run())),
        }
        for row in found
    }


@pytest.mark.parametrize("name", IN_SECONDS)
def test_rows_run_and_have_a_table(name):
    records = measured(name)
    part = tables.parts(records)[name]
    for record in records.values():
        assert record["row"] in part


def test_auto_is_held_against_every_solver():
    rows = [
        "cheap: random, ρ = 0.8",
        "cheap: 1.5 × orthogonal",
        "dear: symmetric",
        "cheap: Cora, trained",
        "cheap: Hopfield, trained",
    ]
    records = measured("hindsight", rows)
    outcomes = records["hindsight/cheap: random, ρ = 0.8"]["figures"]["outcomes"]
    assert all(found["succeeds"] and found["error"] < 1e-3 for found in outcomes.values())
    rotation = records["hindsight/cheap: 1.5 × orthogonal"]["figures"]
    assert rotation["outcomes"]["Auto"]["succeeds"]
    assert not rotation["outcomes"]["Neumann"]["succeeds"]
    assert all(record["figures"]["same_bits"] for record in records.values())
    assert "CG" in records["hindsight/dear: symmetric"]["figures"]["outcomes"]
    assert all(row in tables.parts(records)["hindsight"] for row in rows)


HONEST = ["adjoint stopped early", "forward stopped early", "second derivative", "spectral radius"]
UNDECLARED = "second derivative: steadygrad, not told derivatives=2"


def test_the_library_is_honest():
    rows = [*(f"{name}: steadygrad" for name in HONEST), UNDECLARED]
    found = {record["row"]: record["figures"] for record in measured("honesty", rows).values()}
    verdicts = [found[row]["verdict"] for row in rows]
    assert verdicts == ["wrong, with a warning", "wrong, with a warning", "right", "right", "refused"]
    stopped = found["adjoint stopped early: steadygrad"]
    assert stopped["error"] / 10 < stopped["estimate"] < 10 * stopped["error"]


def test_transforms_of_the_library_are_right():
    rows = [f"{name}: steadygrad" for name in ("forward derivative", "vmap of grad")]
    verdicts = {record["figures"]["verdict"] for record in measured("honesty", rows).values()}
    assert verdicts == {"right"}


def test_the_estimate_follows_the_error_of_a_stopped_solve():
    figures = measured("wrong_gradient", ["steadygrad"])["wrong_gradient/steadygrad"]["figures"]
    for off, told, words in zip(figures["errors"], figures["estimates"], figures["words"], strict=True):
        assert off / 3 < told < 3 * off
        assert "adjoint solve" in words


def test_the_gradient_of_the_steps_is_exact_where_the_implicit_one_is_not():
    points = measured("gradient_error", ["not steady"])["gradient_error/not steady"]["figures"]["points"]
    assert all(points[name]["error"] < 1e-5 for name in ("BPTT", "BPTT √T", "BPTT log T", "Reversible"))
    assert points["auto"]["error"] > 0.1


def test_the_comparison_of_the_readme_is_filled_from_the_records(tmp_path, capsys):
    records = measured("honesty", [*(f"{name}: steadygrad" for name in HONEST), UNDECLARED]) | measured("peer_seconds")
    page, readme, results = tmp_path / "speed.md", tmp_path / "README.md", tmp_path / "results.json"
    page.write_text((ROOT / "docs/speed.md").read_text())
    results.write_text(json.dumps(records))
    tool = [str(results), str(page), "--readme", str(readme)]
    readme.write_text("no marks\n")
    assert speed_numbers.main(tool) == 0
    assert "has no marks" in capsys.readouterr().out
    assert not speed_numbers.main([*tool, "--check"])
    readme.write_text("before\n<!-- compared -->\nold\n<!-- /compared -->\nafter\n")
    assert speed_numbers.main([*tool, "--check"])
    assert speed_numbers.main(tool) == 0
    assert not speed_numbers.main([*tool, "--check"])
    text = readme.read_text()
    assert text.startswith("before\n<!-- compared -->\n|")
    assert text.endswith("<!-- /compared -->\nafter\n")
    assert "right; refused if not declared" in text
    assert all(name in text for name in compared.DOCUMENTED)


def test_implicit_peaks_are_flat_and_bptt_grows():
    from benchmarks import memory

    neumann = memory.peaks("Neumann", 16, 32, (20, 80), (10, 40))
    bptt = memory.peaks("BPTT", 16, 32, (20, 80), (10, 40))
    assert neumann["T"]["tensors"][0] == neumann["T"]["tensors"][1]
    assert bptt["T"]["tensors"][1] > 3 * bptt["T"]["tensors"][0]


def test_a_convolution_step_runs():
    records = measured("training", ["convolution, fixed point"])
    losses = records["training/convolution, fixed point"]["figures"]["loss_of_first_steps"]
    assert len({round(loss, 3) for loss in losses.values()}) == 1


def test_a_run_stores_rows_and_goes_on_where_it_was(tmp_path):
    out = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", "--tiny", "--only", "warm_start", "--out", str(out)]
    first = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    (record,) = store.read(out).values()
    assert {"what", "figures", "machine", "versions", "when", "seconds", "effort"} <= record.keys()
    again = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert "is there" not in first.stdout
    assert "is there" in again.stdout


def test_a_row_that_fails_leaves_its_error(tmp_path, capsys):
    from benchmarks.__main__ import record_of

    record = record_of("growth", Row("broken", "what", lambda: 1 / 0), "tiny", 1)  # pyright: ignore[reportArgumentType]
    assert record["error"] == "ZeroDivisionError: division by zero"
    assert "figures" not in record
    store.put(record, tmp_path / "results.json")
    assert not store.is_done(store.read(tmp_path / "results.json")["growth/broken"], "tiny", record["versions"]["steadygrad"])


def test_the_page_has_a_mark_for_every_benchmark(tmp_path):
    page = tmp_path / "speed.md"
    page.write_text((ROOT / "docs/speed.md").read_text())
    results = tmp_path / "results.json"
    results.write_text(json.dumps(measured("growth")))
    tool = [str(results), str(page)]
    assert speed_numbers.main([*tool, "--check"])
    assert speed_numbers.main(tool) == 0
    assert not speed_numbers.main([*tool, "--check"])
    assert (tmp_path / "speed/growth.svg").exists()
    assert page.read_text().count(tables.NOT_YET) == len(BENCHMARKS) - 1


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still but for wait(milliseconds)."""
    now = [0.0]
    monkeypatch.setattr(frame, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def wait(milliseconds):
        now[0] += milliseconds / 1000

    return wait


def test_a_race_has_ratios_to_its_first_run(clock):
    found = race({"one": lambda: clock(2), "ten": lambda: clock(20)}, EFFORTS["quick"])
    assert found["one"]["ratio"] == 1
    assert found["ten"]["ratio"] == 10
    assert found["ten"]["rounds"] == found["one"]["rounds"] == EFFORTS["quick"].most_rounds


def test_who_is_far_behind_is_timed_once(clock):
    found = race({"one": lambda: clock(2), "ten": lambda: clock(20)}, EFFORTS["quick"], drop_slower_than=3)
    assert found["ten"] == {"ms": 20, "ratio": 10, "quartiles": [10, 10], "rounds": 1}


def test_a_race_ends_with_its_time_but_has_its_least_rounds(clock):
    assert race({"slow": lambda: clock(10_000)}, EFFORTS["quick"])["slow"]["rounds"] == EFFORTS["quick"].least_rounds


def test_exponents_are_those_of_the_largest_values():
    assert exponent([1, 10, 100, 1000], [50, 100, 10_000, 1_000_000]) == pytest.approx(2)


def test_nothing_is_drawn_without_records(tmp_path):
    assert figures.draw({}, tmp_path) == []


def test_of_several_processes_the_one_in_the_middle_counts():
    found = [{"times": {"a": {"ratio": ratio, "ms": 10 * ratio}}, "difference": {"a": ratio}} for ratio in (1.3, 1.1, 1.2)]
    assert frame.middle(found) == {"times": {"a": {"ratio": 1.2, "ms": 12.0, "ratios": [1.1, 1.3]}}, "difference": {"a": 1.3}}
