"""The theory experiment against dense algebra, and what the report says of it."""

import json
from dataclasses import replace

import pytest
import torch

from steadygrad.paper.experiments.experiment import settings
from steadygrad.paper.experiments.theory import THEORY, TheoryConfig
from steadygrad.paper.experiments.theory.maps import Map, relative
from steadygrad.paper.experiments.theory.penalties import PENALTIES
from steadygrad.paper.records import Record
from steadygrad.paper.report import SECTIONS, Figure, style
from steadygrad.paper.report.verdicts import AT_LENGTH, CONTRADICTED, FAILS, HOLDS, NO_DATA, SHORTER, UNDECIDED, UNTESTED

section = SECTIONS["theory"]
SMALL = TheoryConfig(size=8, terms=6, descents=8)


def quiet(done, total, note): ...


@pytest.fixture(scope="module")
def records():
    trials = [replace(SMALL, seed=seed) for seed in (0, 1)]
    trials += [replace(SMALL, part="penalty", penalty=name, radius=1.3) for name in PENALTIES]
    return [Record("theory", settings(trial), THEORY.run(trial, quiet), None) for trial in trials]


def test_the_dense_gradient_is_that_of_finite_differences():
    made = Map.drawn(5, 0.7, 0)
    h = made.settled()
    exact = made.gradient_dense(h, made.jacobian(h))
    step = 1e-6
    for i, j in ((0, 0), (2, 4)):
        moved = []
        for sign in (1, -1):
            W = made.W.clone()
            W[i, j] += sign * step
            moved.append(0.5 * (made.settled(W) - made.c).square().sum())
        assert float(moved[0] - moved[1]) / (2 * step) == pytest.approx(float(exact[i, j]), rel=1e-5, abs=1e-8)


def test_what_is_recorded_is_what_was_proved(records):
    found = records[0].result
    json.dumps(found, allow_nan=False)
    assert max(found["p2"]) < 1e-12
    assert max(found["p4"]) < 1e-12
    assert found["p1"] < 1e-12
    assert all(error <= bound * (1 + 1e-5) for error, bound in zip(found["p3"], found["bound"], strict=True))
    assert found["neumann"][-1] < 0.1 * found["neumann"][0]
    assert found["min_singular_value"] >= found["one_minus_norm"]


def test_the_papers_penalties_raise_the_smallest_singular_value(records):
    for record in records[2:5]:
        smallest = record.result["min_singular_value"]
        assert len(smallest) == SMALL.descents + 1
        assert smallest[-1] > smallest[0], record.config["penalty"]


def test_relative_difference():
    assert relative(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 4.0])) == pytest.approx(0.75)


def verdicts(found):
    return {part.id: (part.published.name, part.corrected.name) for part in section(found).parts}


def test_the_report_judges_each_proposition(records):
    assert verdicts(records) == {**dict.fromkeys(("P1", "P2", "P3", "P4"), (AT_LENGTH, HOLDS)), "A1": (SHORTER, HOLDS)}
    wrong = [replace(r, result=json.loads(json.dumps(r.result))) for r in records]
    wrong[0].result["p2"][3] = 1e-3
    wrong[1].result["p3"][0] = 2 * wrong[1].result["bound"][0]
    found = verdicts(wrong)
    assert {name for name, pair in found.items() if pair == (CONTRADICTED, FAILS)} == {"P2", "P3"}
    assert set(verdicts([]).values()) == {(NO_DATA, NO_DATA)}
    assert verdicts(records[:2])["A1"] == (NO_DATA, NO_DATA)


@pytest.mark.parametrize(
    ("steps", "last", "expected"),
    [
        (100, 1.0, (AT_LENGTH, HOLDS)),
        (100, 0.0, (CONTRADICTED, FAILS)),
        (15, 1.0, (SHORTER, HOLDS)),
        (15, 0.0, (UNTESTED, UNDECIDED)),
    ],
)
def test_a_short_descent_contradicts_nothing(records, steps, last, expected):
    """In the first steps σ_min may fall: a quick run said "contradicted at length" once."""
    longer = [replace(r, config={**r.config, "descents": steps}, result=json.loads(json.dumps(r.result))) for r in records]
    for record in longer:
        if record.config["part"] == "penalty":
            record.result["min_singular_value"][0], record.result["min_singular_value"][-1] = 0.5, last
    assert verdicts(longer)["A1"] == expected


def test_the_data_are_counted_beside_the_papers_table(records):
    table = next(exhibit for exhibit in section(records).exhibits if exhibit.name == "theory-data")
    assert table.rows[0] == ("Cora", "2,708", "5,429", "7", "1,433", "5,278")
    assert table.rows[1][:5] == ("Pubmed", "19,717", "44,338", "3", "500")


def test_figures_are_drawn(records):
    with style.use():
        for exhibit in section(records).exhibits:
            if isinstance(exhibit, Figure):
                assert any(axis.lines for axis in exhibit.draw().axes)


def test_bad_configs_are_refused():
    with pytest.raises(ValueError, match="a penalty goes with part=penalty"):
        replace(SMALL, penalty="lanczos")
    with pytest.raises(ValueError, match="terms must be at least 1; got 0"):
        replace(SMALL, terms=0)
