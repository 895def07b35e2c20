"""The Hopfield section of the report: verdicts come from the records, both ways, and what is missing is said to be missing."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from steadygrad.paper import records
from steadygrad.paper.experiments.experiment import settings
from steadygrad.paper.experiments.hopfield import corrupt, digits
from steadygrad.paper.experiments.hopfield.data import pack, unpack
from steadygrad.paper.experiments.hopfield.experiment import HopfieldConfig
from steadygrad.paper.experiments.hopfield.presets import PUBLISHED
from steadygrad.paper.records import Record
from steadygrad.paper.report import SECTIONS, Figure, fidelity, page, style
from steadygrad.paper.report.hopfield import trials as sorting
from steadygrad.paper.report.hopfield.h2 import norm_of_start, worst
from steadygrad.paper.report.hopfield.h3 import unpacked
from steadygrad.paper.report.hopfield.h4 import steady_after
from steadygrad.paper.report.hopfield.trials import sort
from steadygrad.paper.report.page import Drawn
from steadygrad.paper.report.trial import Trial
from steadygrad.paper.report.verdicts import AT_LENGTH, CONTRADICTED, FAILS, HOLDS, NO_DATA, READING, SHORTER, UNTESTED

section = SECTIONS["hopfield"]
IMAGES = digits(7)
CONFIGS = {
    "corrected": {**settings(HopfieldConfig(side=7, hidden=51, passes=3, validate_every=3))},
    "as-published": {**settings(PUBLISHED), "side": 7, "hidden": 51, "passes": 3, "validate_every": 3},
}
METHODS = ("bptt", "tbptt", "rbp", "rbp-zeros", "cg-rbp", "neumann-rbp", "auto")
GOOD: dict[str, Any] = {"losses": (0.4, 0.2, 0.1), "error": 0.0, "pace": 0.1}
BLOWN: dict[str, Any] = {"losses": (0.4, 0.8, 2.0), "error": 0.3, "pace": 0.1}


def result(losses: tuple[float, ...], error: float, pace: float, rho: float = 0.5) -> dict[str, Any]:
    """A trial whose loss, pixel error and speed towards the steady state are given; initially the loss is 0.4."""
    final = losses[-1]
    relative = [pace**step for step in range(1, 51)]
    seen = {
        "pass": [0, 3],
        "l1": [0.4, final],
        "clean_l1": [0.4, final],
        "pixel_error": [0.5, error],
        "spectral_radius": [0.1, rho],
        "cotangent": [0.2, 0.1],
        "forward_steps": [None, 20],
        "forward_residual": [None, 1e-6],
        "adjoint_residual": [None, 1e-4],
        "adjoint_products": [None, 21],
    }
    return {
        "training_l1": list(losses),
        "validation": seen,
        "initial_loss": 0.4,
        "final_loss": final,
        "success": final < 0.2,
        "pixel_error": error,
        "pixel_error_fresh": error,
        "pixel_error_clean_input": 0.0,
        "pixel_error_corrupted": 0.1,
        "difference": {"absolute": relative, "relative": relative},
        "difference_clean": {"absolute": relative, "relative": relative},
        "energy": [-5.0 + pace**step for step in range(51)],
        "energy_largest_rise": 0.0,
        "spectral_radius": rho,
        "norm": 0.7,
        "images": {"clean": pack(IMAGES), "corrupted": pack(corrupt(IMAGES, 0)), "retrieved": pack(IMAGES)},
    }


def record(mode: str, method: str, steps: int = 20, seed: int = 0, outcome: dict[str, Any] = GOOD, **changes: Any) -> Record:
    config = {**CONFIGS[mode], "method": method, "steps": steps, "seed": seed, **changes}
    measured = {"seconds": 3.0, "milliseconds_per_step": 12.0, "training_seconds": 2.0, "peak_mb": 300.0}
    return Record("hopfield", config, result(**outcome), None, measured)


def trials(mode: str, seeds: int = 2, **outcomes: dict[str, Any]) -> list[Record]:
    """All methods and K, as the paper has it: RBP blows up at 10 and 20. `outcomes` by method, with _ for -, say otherwise."""
    made: list[Record] = []
    for method in METHODS:
        for steps in (20,) if method in ("bptt", "auto") else (10, 20, 30):
            usual = BLOWN if method == "rbp" and steps < 30 else GOOD
            outcome = outcomes.get(method.replace("-", "_"), outcomes.get("every", usual))
            made += [record(mode, method, steps, seed, outcome) for seed in range(seeds)]
    return made


def verdicts(found: list[Record]) -> dict[str, tuple[str, str]]:
    return {part.id: (part.published.name, part.corrected.name) for part in section(found).parts}


def both(**outcomes: dict[str, Any]) -> list[Record]:
    return trials("corrected", **outcomes) + trials("as-published", **outcomes)


PARTS = ("H1a", "H1b", "H2", "H3", "H4")


def test_claims_that_hold_are_reproduced_in_a_shorter_run():
    assert verdicts(both()) == dict.fromkeys(PARTS, (SHORTER, HOLDS))
    rests = {part.published.rests for part in section(both()).parts}
    assert rests == {"3 of 1,000 passes, 2 seeds"}


@pytest.mark.parametrize(
    ("more", "twice"),
    [
        ([("cg-rbp", 20), ("neumann-rbp", 20)], ()),
        ([("bptt", 20), ("rbp", 20)], ("H1b",)),
        ([("bptt", 20), ("cg-rbp", 20), ("neumann-rbp", 20)], ("H1a",)),
        ([("bptt", 20), ("tbptt", 20), ("cg-rbp", 20), ("neumann-rbp", 20)], ("H1a", "H3", "H4")),
    ],
)
def test_a_second_seed_counts_where_every_method_that_is_compared_has_it(more: list[tuple[str, int]], twice: tuple[str, ...]):
    """Not H2's: of it every method at every K must have the seed."""
    second = [record("as-published", method, steps, 1, BLOWN if method == "rbp" else GOOD) for method, steps in more]
    found = trials("as-published", seeds=1) + second
    assert {part.id for part in section(found).parts if part.published.rests.endswith("2 seeds")} == set(twice)


@pytest.mark.parametrize(
    ("outcomes", "fails"),
    [
        ({"cg_rbp": {**GOOD, "losses": (0.4, 0.25, 0.1)}}, {"H1a"}),  # strays from BPTT on the way
        ({"rbp": GOOD}, {"H1b", "H2"}),  # RBP works
        ({"rbp": BLOWN}, {"H2"}),  # RBP fails at K = 30 too
        ({"tbptt": {**GOOD, "losses": (0.4, 0.2, 0.3)}}, {"H2"}),
        ({"neumann_rbp": {**GOOD, "error": 0.02}}, {"H3"}),
        ({"every": {**GOOD, "pace": 0.9}}, {"H1b", "H2", "H4"}),  # RBP does as well as the others, and all are slow
    ],
    ids=["cg strays", "rbp works", "rbp always fails", "tbptt fails", "bad pixels", "slow"],
)
def test_what_fails_in_a_short_run_is_untested_and_at_length_contradicted(outcomes: dict[str, Any], fails: set[str]):
    found = verdicts(both(**outcomes))
    assert {name for name, pair in found.items() if pair == (UNTESTED, FAILS)} == fails
    long = [replace(r, config={**r.config, "passes": 1000}) for r in trials("as-published", **outcomes)]
    found = verdicts([*trials("corrected"), *long])
    assert {name for name, pair in found.items() if pair == (CONTRADICTED, HOLDS)} == fails
    assert {name for name, pair in found.items() if pair == (AT_LENGTH, HOLDS)} == set(PARTS) - fails


def test_success_depends_on_which_loss_is_the_initial_one():
    """Before any update the loss is 0.4; the first pass may be far above it, since Adam overshoots."""
    good, bad = {**GOOD, "losses": (2.0, 0.5, 0.3)}, {**BLOWN, "losses": (2.0, 3.0, 4.0)}
    found = [
        record("as-published", method, steps, 0, bad if method == "rbp" and steps < 30 else good)
        for method in METHODS
        for steps in (10, 20, 30)
    ]
    (h2,) = (part for part in section(found).parts if part.id == "H2")
    assert h2.published.name == READING
    assert h2.ours == "before any update: 0 %, RBP 0 / 0 / 0 %; of the first pass: 100 %, RBP 0 / 0 / 100 %"
    assert "(0.40) or the first pass (2.00)" in h2.why


def test_a_long_trial_of_one_method_decides_what_it_can():
    longer = record("as-published", "neumann-rbp", passes=1000, outcome={**GOOD, "error": 0.095, "pace": 0.3})
    found = verdicts([*both(every={**GOOD, "pace": 0.9}), longer])
    assert found["H3"][0] == CONTRADICTED
    assert found["H4"][0] == AT_LENGTH
    assert found["H1a"][0] == SHORTER
    (h4,) = (part for part in section([*both(every={**GOOD, "pace": 0.9}), longer]).parts if part.id == "H4")
    assert h4.published.rests == "1,000 passes, 1 seed"
    assert "after 3 passes from step" in h4.why


def test_runs_at_the_papers_length_decide_beside_shorter_ones_with_more_methods():
    as_released = {"passes": 1000, "linearise": "previous", "shuffle": True, "ridge": 1e-5}
    long = [
        replace(r, config={**r.config, **as_released})
        for r in trials("as-published", seeds=1, cg_rbp={**GOOD, "losses": (0.4, 0.3, 0.1)})
        if r.config["method"] not in ("auto", "rbp-zeros")
    ]
    found = verdicts([*both(), *long])
    assert {name: pair[0] for name, pair in found.items()} == {**dict.fromkeys(PARTS, AT_LENGTH), "H1a": CONTRADICTED}


def at_length(*chosen: tuple[str, int], outcome: dict[str, Any] = GOOD, **changes: Any) -> list[Record]:
    """Trials of the preset `long`, which the records of `standard` besides are not: J at h_{T−1}, shuffled, a ridge."""
    as_released = {"passes": 1000, "linearise": "previous", "shuffle": True, "ridge": 1e-5, **changes}
    return [record("as-published", method, steps, 0, outcome, **as_released) for method, steps in chosen]


def test_a_reading_at_the_papers_length_is_that_of_those_trials_alone():
    good, bad = {**GOOD, "losses": (2.0, 0.5, 0.3)}, {**BLOWN, "losses": (2.0, 3.0, 4.0)}
    chosen = [(m, K) for m in ("tbptt", "cg-rbp", "neumann-rbp", "rbp") for K in (10, 20, 30)]
    blown = [pair for pair in chosen if pair in (("rbp", 10), ("rbp", 20))]
    long = at_length(*(pair for pair in chosen if pair not in blown), outcome=good) + at_length(*blown, outcome=bad)
    (h2,) = (part for part in section([*both(), *long]).parts if part.id == "H2")
    assert (h2.published.name, h2.published.rests) == (READING, "1,000 passes, 1 seed")
    assert h2.ours == "before any update: 0 %, RBP 0 / 0 / 0 %; of the first pass: 100 %, RBP 0 / 0 / 100 %"


@pytest.mark.parametrize("steps", [20, 10])
def test_a_part_of_the_trials_at_the_papers_length_decides_what_it_can_and_what_is_missing_is_named(steps: int):
    found = [*both(), *at_length(("bptt", 20), ("neumann-rbp", steps), ("cg-rbp", steps))]
    parts = {part.id: part for part in section(found).parts}
    assert parts["H1a"].published.name == (AT_LENGTH if steps == 20 else SHORTER)
    assert parts["H1b"].published.rests == parts["H2"].published.rests == "3 of 1,000 passes, 2 seeds"
    others = "10, 30" if steps == 20 else "20, 30"
    assert "After 1,000 passes there is no TBPTT at K = 10, 20, 30; RBP at K = 10, 20, 30; CG-RBP at K = " in parts["H2"].why
    assert parts["H2"].why.split(" Corrected")[0].endswith(f"; Neumann-RBP at K = {others}.")
    assert parts["H4"].published.rests == "1,000 passes, 1 seed"


def test_one_trial_at_the_papers_length_can_be_enough_against_a_claim():
    strays = at_length(("bptt", 20)) + at_length(("neumann-rbp", 20), outcome={**GOOD, "losses": (0.4, 0.3, 0.25)})
    parts = {part.id: part for part in section([*both(), *strays]).parts}
    assert parts["H1a"].published.name == parts["H2"].published.name == CONTRADICTED  # it ends above half, by either reading
    assert parts["H1a"].ours == "CG-RBP not run, Neumann-RBP within 150 % (all passes: 150 %)"
    assert parts["H2"].ours == "before any update: 0 %, RBP – / – / – %; of the first pass: 0 %, RBP – / – / – %"


def test_a_curve_that_leaves_bptts_at_few_of_many_passes_follows_it():
    """The largest distance of curves that jitter grows with their length, by whatever gradient."""
    usual = [0.4, *[0.1] * 99]
    exact, near, far = ({**GOOD, "losses": (*usual[:50], *[0.2] * count, *usual[50 + count :])} for count in (0, 9, 11))
    for outcome, expected in ((near, AT_LENGTH), (far, CONTRADICTED)):
        long = at_length(("bptt", 20), outcome=exact) + at_length(("neumann-rbp", 20), ("cg-rbp", 20), outcome=outcome)
        assert verdicts([*both(), *long])["H1a"][0] == expected


def test_tables_and_figures_show_the_trials_at_the_papers_length_with_most_methods_and_the_modes():
    lone = record("as-published", "neumann-rbp", passes=1000, linearise="last", shuffle=False, ridge=0.0)
    slow = at_length(("bptt", 20), rate=1e-4)
    found = [*both(), lone, *slow, *at_length(("bptt", 20), ("neumann-rbp", 20))]
    assert [(group.heading, len(group.trials)) for group in sort(found).shown()[:1]] == [("As published, 1,000 passes", 2)]
    made = section(found)
    exhibits = {exhibit.name: exhibit for exhibit in made.exhibits}
    assert made.settings.head == ("setting", "as published, 1,000 passes", "as published", "corrected")
    for name in ("h1-gaps", "h2", "h4-steps"):
        assert sum(row[0].startswith("As published") for row in exhibits[f"hopfield-{name}"].rows)
    assert {"hopfield-h3-as-published-long", "hopfield-h3-as-published", "hopfield-h3-corrected"} <= set(exhibits)
    assert len(exhibits["hopfield-long-table"].rows) == 4  # with the lone one and the slow one
    assert "With a rate of 0.0001 BPTT ends after 1,000 passes at 0.25 times the loss before any" in " ".join(made.body.split())
    with style.use():
        titles = [axis.get_title(loc="left") for axis in exhibits["hopfield-h1"].draw().axes]
    assert titles[::2] == ["As published, 1,000 passes: training", "As published: training", "Corrected: training"]


def test_what_is_missing_is_said_to_be_missing():
    assert set(verdicts([]).values()) == {(NO_DATA, NO_DATA)}
    assert set(verdicts([record("corrected", "auto")]).values()) == {(NO_DATA, NO_DATA)}
    found = verdicts([r for r in both() if r.config["method"] != "rbp"])
    assert {name for name, pair in found.items() if pair[0] == NO_DATA} == {"H1b", "H2"}
    assert {pair[0] for pair in verdicts(trials("corrected")).values()} == {NO_DATA}


def test_the_names_of_before_are_read():
    """RBP is "rbp" in old records, and settings that came later are as they were."""
    (trial,) = sort([record("corrected", "rbp")]).corrected.trials
    assert trial.method == "rbp-uniform"
    assert {key: trial.config[key] for key in sorting.BEFORE} == sorting.BEFORE
    later = {field.name: field.metadata["before"] for field in fields(HopfieldConfig) if "before" in field.metadata}
    assert later == sorting.BEFORE


def test_failed_trials_are_no_results():
    failed = Record("hopfield", {**CONFIGS["corrected"], "method": "bptt", "steps": 20, "seed": 0}, None, "ValueError: no")
    assert section([failed]).exhibits == ()
    assert set(verdicts([failed]).values()) == {(NO_DATA, NO_DATA)}


def test_a_loss_that_is_not_finite_has_blown_up():
    gone = result((0.4, math.nan), 0.3, 0.1)
    gone |= {"success": False, "spectral_radius": None, "norm": None}
    gone["validation"] |= {"l1": [0.4, math.nan], "spectral_radius": [0.1, None], "adjoint_residual": [None, math.inf]}
    found = [r for r in both() if not (r.config["method"] == "rbp" and r.config["steps"] == 20)]
    for mode in CONFIGS:
        found.append(Record("hopfield", {**CONFIGS[mode], "method": "rbp", "steps": 20, "seed": 0}, gone, None))
    assert verdicts(found)["H1b"] == (SHORTER, HOLDS)
    with style.use():
        for block in section(found).exhibits:
            if isinstance(block, Figure):
                assert block.draw().axes


def test_a_change_taken_back_and_a_longer_trial_depart_from_the_nearest_mode():
    back = record("corrected", "bptt", slope=0.5, outcome={**GOOD, "error": 0.11})
    readout = record("corrected", "bptt")
    readout.config["mode"] = "as-published"
    longer = record("as-published", "neumann-rbp", passes=900)
    for found in ([*both(), back, readout, longer], [*trials("corrected"), readout]):
        kept = sort(found)
        assert all(len(setting.trials) == len(trials(setting.mode)) for setting in kept.all)
    kept = sort([*both(), back, readout, longer])
    assert [setting.setting["passes"] for setting in kept.published.longer] == [900]
    base = kept.corrected
    changes = [base.changes(other) for other in fidelity.departures(base)]
    assert changes == [{"mode": ("corrected", "as-published")}, {"slope": (3.0, 0.5)}]
    assert fidelity.departures(kept.published) == []
    exhibits = {exhibit.name: exhibit for exhibit in section([*both(), back, readout, longer]).exhibits}
    assert ("slope 3 → 0.5", "BPTT", "0.100", "11.0", "0.100", "0.0", "0.100", "0.0") in exhibits["hopfield-ablation"].rows
    assert [row[:2] for row in exhibits["hopfield-long-table"].rows] == [("49 / 51 / 49", "Neumann-RBP, K = 20")]


def test_the_table_of_success_stands_beside_the_paper():
    (table,) = (exhibit for exhibit in section(both()).exhibits if exhibit.name == "hopfield-h2")
    rows = {row[:2]: [cell.replace("\u00a0", " ") for cell in row[2:]] for row in table.rows}
    numbers = ["5.00 / 5.00 / 0.25", "5.00 / 5.00 / 0.25", "30.00 / 30.00 / 0.00"]
    assert rows["Corrected", "RBP"] == ["1 / 4 / 99 %", "0 / 0 / 2 of 2", "0 / 0 / 2 of 2", *numbers]
    assert rows["As published", "BPTT"] == ["–", "2 of 2", "2 of 2", "0.25", "0.25", "0.00"]


@pytest.mark.parametrize("drawn", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["page only", "drawn"])
def test_the_page_has_every_figure_and_every_claim_links_to_its_fold(tmp_path: Path, monkeypatch: Any, drawn: bool):
    if not drawn:
        monkeypatch.setattr(page, "draw", lambda figure: Drawn(b"<svg/>", b"%PDF", 7, 7))
    for made in (*both(), record("as-published", "bptt", passes=900), record("corrected", "bptt", slope=0.5)):
        records.write(tmp_path / "runs", made)
    written = page.write(tmp_path / "runs", tmp_path / "report.html")
    assert written.problems == []
    names = {"h1", "h3-corrected", "h3-as-published", "h4"}
    assert {path.stem for path in (tmp_path / "figures").glob("*.svg")} == {f"hopfield-{name}" for name in names}
    html = written.page.read_text()
    for claim in ("h1", "h2", "h3", "h4"):
        assert f'href="#hopfield-{claim}"' in html
        assert f'<details class="fold" id="hopfield-{claim}">' in html


def test_steady_after_counts_from_one_and_wants_the_state_to_stay():
    assert steady_after([1.0, 0.5, 0.001, 0.5, 0.001, 0.0001], 0.01) == 5
    assert steady_after([0.001, 0.0001], 0.01) == 1
    assert steady_after([1.0, 0.5], 0.01) is None
    assert steady_after([1.0, 0.001, math.nan], 0.01) is None


def test_what_is_left_of_the_start_of_rbp():
    trial = Trial({"side": 7, "hidden": 51}, result((0.1,), 0.0, 0.1, rho=0.5), {})
    assert norm_of_start(trial) == pytest.approx(math.sqrt(100 / 3))
    assert worst(trial, 10)[0] == pytest.approx(0.5**10 * math.sqrt(100 / 3) / 0.1)


def test_images_are_read_as_they_were_packed():
    assert (unpacked(pack(IMAGES), 7).reshape(10, 49) == unpack(pack(IMAGES), 49).numpy()).all()
