"""The hyperopt section of the report: verdicts come from the records, both ways, and what is missing is said to be missing."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperopt_records import (
    COUNTS,
    GAP,
    LENGTHS,
    META,
    MODES,
    TUNED,
    both,
    config,
    cost,
    costs,
    errors,
    falling,
    mode_records,
    tune,
)
from steadygrad.paper import records
from steadygrad.paper.experiments.hyperopt import HyperoptConfig
from steadygrad.paper.records import Record
from steadygrad.paper.report import SECTIONS, Figure, Table, page, style
from steadygrad.paper.report.hyperopt.m1 import bend, end
from steadygrad.paper.report.hyperopt.m3 import beats, exact_ones, ours_beside, shares
from steadygrad.paper.report.hyperopt.m4 import Path as Walk
from steadygrad.paper.report.hyperopt.trials import BEFORE, sort
from steadygrad.paper.report.page import Drawn
from steadygrad.paper.report.trial import ratio
from steadygrad.paper.report.verdicts import AT_LENGTH, CONTRADICTED, FAILS, HOLDS, NO_DATA, NOT_APPLICABLE, SHORTER, UNTESTED

section = SECTIONS["hyperopt"]


def verdicts(found: list[Record]) -> dict[str, tuple[str, str]]:
    return {part.id: (part.published.name, part.corrected.name) for part in section(found).parts}


def of(found: list[Record], name: str) -> Any:
    return next(part for part in section(found).parts if part.id == name)


def blocks(found: list[Record], kind: type) -> dict[str, Any]:
    return {exhibit.name: exhibit for exhibit in section(found).exhibits if isinstance(exhibit, kind)}


META_PARTS = ("M1a", "M1b", "M1c", "M2a", "M2b")


def test_claims_that_hold_are_reproduced_in_a_shorter_run():
    found = verdicts(both())
    assert {found[name] for name in META_PARTS} == {(SHORTER, HOLDS)}
    assert found["M4"] == (AT_LENGTH, HOLDS)  # meta step 40 is all that the paper shows
    assert of(both(), "M1a").published.rests == "40 of 100 meta steps, 2 seeds"


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({"gaps": {**GAP, "neumann-rbp": 4.0}}, {"M1c", "M2a", "M2b"}),  # above RBP
        ({"gaps": {**GAP, "neumann-rbp": 0.5}}, {"M2a"}),  # far below BPTT is no match either
        ({"gaps": {**GAP, "rbp": 1.101}}, {"M1c", "M2b"}),  # level with RBP is not below it
        ({"drift": 0.5}, {"M1b", "M1c"}),  # TBPTT better as T grows
        ({"jitter": 1e-4}, {"M1a"}),  # rougher as T grows
        ({"restless": False}, {"M4"}),  # both come to rest
        ({"resting": False}, {"M4"}),  # neither does
    ],
    ids=["neumann worst", "neumann best", "level", "tbptt better", "rougher", "all rest", "none rests"],
)
def test_what_fails_in_a_short_run_is_untested_and_at_length_contradicted(changes: dict[str, Any], fails: set[str]):
    found = verdicts(both(**changes))
    failed = {name for name, (published, fixed) in found.items() if published in (UNTESTED, CONTRADICTED) and fixed == FAILS}
    assert failed - {"M1c"} == fails - {"M1c"}
    long = verdicts(both(**changes, meta_steps=100))
    assert {name for name, (published, _) in long.items() if published == CONTRADICTED} - {"M1c"} == fails - {"M1c"}


AT_1500 = ("bptt", "tbptt", "rbp", "neumann-rbp")


def with_full(*methods: str, **changes: Any) -> list[Record]:
    """Three T with 40 meta steps, and T = 1500 with all of the paper's, mini-batches drawn anew, as the preset `long` has it."""
    usual = mode_records("as-published")
    return usual + [tune("as-published", method, 1500, 50, meta_steps=100, shuffle=True, **changes) for method in methods]


def test_one_setting_at_the_papers_length_does_not_make_the_claim_one_at_length():
    found = with_full(*AT_1500)
    assert {verdicts(found)[name][0] for name in META_PARTS} == {SHORTER}
    for name in ("M1c", "M2a", "M2b"):
        assert of(found, name).published.rests == "40 of 100 meta steps, 100 at T = 1500, K = 50, 1 to 2 seeds"
        assert "7 of 7 settings, in full 1 of 1" in of(found, name).ours
    all_settings = [
        tune("as-published", m, T, K, meta_steps=100)
        for m in AT_1500
        for T in (*LENGTHS, 1500)
        for K in (0,) * (m == "bptt") or COUNTS
    ]
    assert {verdicts(all_settings)[name][0] for name in META_PARTS} == {AT_LENGTH}
    assert of(all_settings, "M1b").published.rests == "100 meta steps, 1 seed"


def test_one_setting_at_the_papers_length_contradicts_what_is_said_of_all_but_not_what_is_said_of_most():
    found = with_full(*AT_1500, gaps={**GAP, "neumann-rbp": 9.0})
    assert [verdicts(found)[name][0] for name in ("M1c", "M2a", "M2b")] == [CONTRADICTED, SHORTER, CONTRADICTED]
    assert of(found, "M1c").published.rests == "100 meta steps at T = 1500, K = 50, 1 seed"
    assert of(found, "M1c").ours == "below both in 6 of 7 settings, in full 0 of 1"


def test_a_t_that_was_tuned_longer_is_not_compared_with_the_others():
    """M1a and M1b say how something changes with T: only trials with the same meta steps and order of mini-batches tell."""
    usual, rough = of(mode_records("as-published"), "M1a"), of(with_full(*AT_1500, jitter=1e-3), "M1a")
    assert (rough.published, rough.ours) == (usual.published, usual.ours)
    assert "Not compared, since tuned otherwise: T = 1500, K = 50 (100 meta steps)" in rough.why
    worse = of(with_full(*AT_1500, drift=-3.0), "M1b")
    assert worse.published == of(mode_records("as-published"), "M1b").published
    assert "1500" not in worse.ours


def test_what_the_papers_length_still_lacks_is_named():
    found = with_full("neumann-rbp", "tbptt")
    assert "T = 1500, K = 50 at full length has no BPTT, RBP yet." in of(found, "M1c").why
    for name in META_PARTS:
        assert of(found, name).published.rests == of(mode_records("as-published"), name).published.rests
    assert "at full length" not in of(with_full(*AT_1500), "M1c").why
    rows = {row[0]: row[1] for row in section(found).settings.rows}
    assert (rows["meta steps"], rows["T with mini-batches drawn anew"]) == ("40, 100", "1500")


@pytest.mark.parametrize(
    ("full", "step", "expected"),
    [
        ({}, {}, (AT_LENGTH,) * 4),
        ({"faster": 1.5}, {}, (CONTRADICTED, AT_LENGTH, AT_LENGTH, AT_LENGTH)),
        ({"smaller": 2.0}, {"faster": 2.0}, (AT_LENGTH, CONTRADICTED, CONTRADICTED, AT_LENGTH)),
        ({"faster": 2.9 * 0.85}, {}, (AT_LENGTH,) * 4),  # within the noise of the paper's
    ],
    ids=["both", "text only", "each", "noise"],
)
def test_m3_judges_time_and_memory_and_the_codes_way_and_the_texts_way_apart(full: Any, step: Any, expected: Any):
    found = [*costs("as-published", **full), *costs("as-published", "step", **step)[2:]]
    assert tuple(verdicts(found)[f"M3{letter}"][0] for letter in "abcd") == expected
    assert verdicts(found)["M3a"][1] == NOT_APPLICABLE
    assert "Flat in T: " in of(found, "M3b").why


def test_m3_stands_beside_the_papers_ratios():
    table = blocks(costs("as-published"), Table)["hyperopt-m3"]
    rows = [row for row in table.rows if row[1] == "Neumann-RBP" and row[3] == "1000"]
    numbers = ("10", "2.86", "3.50", "2.87", "1,000", "16.7", "60", "4.25")
    assert rows[1] == ("As published", "Neumann-RBP", "all images", "1000", "50", *numbers, "–")
    assert [row[8] for row in rows] == ["3.02", "2.87", "2.68"]
    assert [row[12] for row in rows] == ["4.35", "4.25", "4.11"]
    assert {row[8] for row in table.rows if row not in rows} == {"–"}


def test_m3_has_the_exact_hypergradient_in_little_memory_beside():
    exact = cost("as-published", "bptt-log", 1000, 50, seconds=15.0, memory=20.0)
    exact.result["cosine"] = 1.0
    exact.measured.update(bptt_cpu_seconds=10.0, bptt_memory_mb=1000.0)
    found = [*costs("as-published"), exact]
    row = next(row for row in blocks(found, Table)["hyperopt-m3"].rows if row[1] == "BPTT, log₂ T states")
    numbers = ("10", "15", "0.67", "–", "1,000", "20", "50", "–", "1")
    assert row == ("As published", "BPTT, log₂ T states", "–", "1000", "–", *numbers)
    (mode,) = sort(found).all
    (log,), (ours,) = exact_ones(mode), ours_beside(mode).values()
    assert shares(log)[0] == pytest.approx(1.5)
    assert not beats(log, ours)  # 3.5 times faster than BPTT, in less memory
    dear = [*costs("as-published", faster=0.7, smaller=10.0), exact]
    assert "not worth it here, since BPTT, log₂ T states is exact" in " ".join(section(dear).body.split())


def test_memory_that_grows_with_the_training_is_called_so():
    grown = [cost("as-published", "neumann-rbp", T, 50, memory=T / 10) for T in (100, 1000)]
    found = [r for r in costs("as-published") if r.config["method"] == "bptt"] + grown
    assert "Not flat in T: 10 MB at 100, 100 at 1000" in of(found, "M3b").why


def test_shorter_costs_give_numbers_but_no_verdict():
    found = [r for r in costs("as-published") if r.config["training_steps"] == 100]
    part = of(found, "M3a")
    assert part.published.name == NO_DATA
    assert part.ours == "3.50 / 3.50 / 3.50"
    nothing = [cost("as-published", m, 1000, 50, seconds=s, memory=0.0) for m, s in (("bptt", 1.0), ("neumann-rbp", 0.5))]
    assert of(nothing, "M3b").ours == "∞"


def test_a_cost_without_bptts_beside_it_gives_no_ratio():
    alone = cost("as-published", "neumann-rbp", 1000, 50)
    alone.measured.pop("bptt_cpu_seconds")
    part = of([alone], "M3a")
    assert (part.published.name, part.ours) == (NO_DATA, "")


@pytest.mark.parametrize("order", [1, -1])
def test_costs_that_were_measured_more_often_take_the_place_of_others(order: int):
    old, new = (
        cost("as-published", "neumann-rbp", 1000, 50, seconds=seconds, repeats=count) for seconds, count in ((5.0, 2), (2.0, 4))
    )
    assert of([old, new][::order], "M3a").ours == "5.00"


def test_the_settings_have_the_repeats_of_the_costs_and_not_those_of_tuning_which_has_none():
    found = [r for r in both() if (r.config["task"], r.config["mode"]) != ("cost", "corrected")]
    for record in found:
        record.config.setdefault("repeats", 2)  # as every config has it
    (repeats,) = [row[1:] for row in section(found).settings.rows if row[0] == "repeats"]
    assert repeats == ("3", "–")


def test_what_is_missing_is_said_to_be_missing():
    assert {name for name, (published, _) in verdicts([]).items() if published != NO_DATA} == set()
    assert {published for published, _ in verdicts([tune("corrected", "auto", 100, 0)]).values()} == {NO_DATA}
    without = verdicts([r for r in both() if r.config["method"] != "bptt"])
    assert {name for name, (published, _) in without.items() if published == NO_DATA} == {"M1b", "M2a", "M3c", "M3d"}


def test_trials_for_trying_out_are_no_evidence():
    short = [tune(mode, method, 40, 10, meta_steps=4) for mode in MODES for method in TUNED]
    assert {published for published, _ in verdicts(short).values()} == {NO_DATA}


def test_failed_trials_and_records_of_other_kinds_are_no_results():
    failed = Record("hyperopt", config("tune", "corrected", "bptt", 100, 0), None, "ValueError: no")
    odd = Record("hyperopt", {"task": "sing", "mode": "corrected"}, {"song": 1}, None)
    made = section([failed, odd])
    assert made.exhibits == ()
    assert {part.published.name for part in made.parts} == {NO_DATA}


def test_settings_that_came_later_are_as_they_were():
    later = {field.name: field.metadata["before"] for field in fields(HyperoptConfig) if "before" in field.metadata}
    assert later == BEFORE


def test_the_setting_with_most_training_is_shown_and_the_rest_counted():
    strangers = [tune("corrected", "bptt", 100, 0, images=60), tune("corrected", "bptt", 100, 0, meta_steps=7)]
    others = [tune("corrected", "neumann-rbp", 100, 50, last="fresh")]
    (mode,) = sort([*mode_records("corrected"), *strangers, *others]).all
    assert [(cell.T, cell.K) for cell in mode.cells] == [(T, K) for T in LENGTHS for K in COUNTS]
    assert {len(cell.trials) for cell in mode.cells} == {2 * len(TUNED)}
    assert mode.left_out == len(strangers) + len(others)


def test_reshuffled_trials_stand_beside_the_others_and_not_among_them():
    usual, anew = mode_records("as-published"), tune("as-published", "neumann-rbp", 100, 50, shuffle=True)
    found = sort([*usual, anew])
    assert [cell.trials for cell in found.all[0].cells] == [cell.trials for cell in sort(usual).all[0].cells]
    assert found.all[0].left_out == 0
    (row,) = blocks([*usual, anew], Table)["hyperopt-fidelity-table"].rows
    assert row[:2] == ("T = 100, K = 50", "Neumann-RBP")
    assert row[2:4] == row[4:6]  # made up alike


def test_hypergradients_are_compared_in_both_modes_and_all_ways():
    rows = blocks(both(), Table)["hyperopt-errors-table"].rows
    assert ("Neumann-RBP", "all images", "100", "50", "0.88", "0.121", "0.88", "0.121") in rows
    assert ("Neumann-RBP", "fresh batches", "100", "10", "0.8", "0.205", "–", "–") in rows
    usual = [row for row in rows if row[1] in ("–", "all images")]
    assert [row[3] for row in usual[:13]] == ["10"] * 4 + ["50"] * 4 + ["100"] * 4 + ["–"]


def test_the_traps_are_named_in_plain_words(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(page, "draw", lambda figure: Drawn(b"<svg/>", b"%PDF", 7, 7))
    for made in both():
        records.write(tmp_path / "runs", made)
    html = page.write(tmp_path / "runs", tmp_path / "report.html").page.read_text()
    words = " ".join(re.sub("<[^>]+>", "", html).split())
    assert "Learning rates do not move the point of rest." in words
    assert "in 12 of 42 trials as published: rate; in 0 of 42 trials corrected" in words
    assert "released code of Neumann-RBP is not constant-memory" in words


ODD = {
    "one seed": [r for r in mode_records("corrected", seeds=1) if r.config["training_steps"] == 1000 and r.config["steps"] < 100],
    "K = 100 at one T": [
        r
        for r in mode_records("as-published")
        if r.config["seed"] and (r.config["training_steps"] == 100 or r.config["steps"] < 100)
    ],
    "errors only": [errors("corrected", 100)],
    "without K": [tune("corrected", "bptt", T, 0) for T in LENGTHS],
    "costs only": costs("as-published"),
}


@pytest.mark.parametrize("found", ODD.values(), ids=ODD)
def test_any_part_of_the_records_is_drawn(found: list[Record]):
    with style.use():
        for figure in blocks(found, Figure).values():
            assert figure.records
            assert figure.alt
            picture = figure.draw()
            assert any(axis.lines for axis in picture.axes)


def test_what_was_not_measured_leaves_gaps():
    gone = tune("corrected", "neumann-rbp", 1000, 50)
    assert gone.result is not None
    gone.result.update(
        meta_loss=[None] * META, reference=None, last_training=None, movement=None, trajectory=None, degenerate=None
    )
    found = [r for r in mode_records("corrected", seeds=1) if r.trial != gone.trial] + [gone]
    assert len(found) == len(mode_records("corrected", seeds=1))
    section(found)
    with style.use():
        for name in ("hyperopt-m1-corrected", "hyperopt-m2-corrected"):
            blocks(found, Figure)[name].draw()


@pytest.mark.parametrize("drawn", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["page only", "drawn"])
def test_the_page_has_every_figure_and_every_claim_links_to_its_own(tmp_path: Path, monkeypatch: Any, drawn: bool):
    if not drawn:
        monkeypatch.setattr(page, "draw", lambda figure: Drawn(b"<svg/>", b"%PDF", 7, 7))
    for made in both():
        records.write(tmp_path / "runs", made)
    written = page.write(tmp_path / "runs", tmp_path / "report.html", {"hyperopt": section})
    assert written.problems == []
    names = {f"{name}-{mode}" for name in ("m1", "m2", "m4") for mode in MODES}
    assert {path.stem for path in (tmp_path / "figures").glob("*.svg")} == {f"hyperopt-{name}" for name in names}
    html = written.page.read_text()
    for claim in ("m1", "m2", "m3", "m4"):
        assert f'href="#hyperopt-{claim}"' in html
        assert f'<details class="fold" id="hyperopt-{claim}">' in html


def test_ends_bends_and_ratios():
    assert end([5.0, 4.0]) == 4.0
    assert end([9.0] * 18 + [1.0, 3.0]) == 2.0
    assert end([1.0, None]) is None
    assert bend(falling(1.0, 1e-3, 30)) == pytest.approx(0, abs=1e-12)
    assert bend([1.0, math.e, 1.0]) == pytest.approx(2)
    assert bend([1.0, 2.0]) is None
    assert ratio(1.0, 0.0) == math.inf
    assert ratio(math.nan, 1.0) == math.inf
    assert ratio(None, 1.0) is None


def test_pace_of_a_path_and_how_far_it_is_from_its_end():
    steps = list(range(101))
    even = Walk(steps, np.outer(np.arange(101), np.ones(3)))
    assert even.pace == pytest.approx(1)
    assert even.away[1][:51:50] == [1, pytest.approx(0.5)]
    assert Walk(steps, np.exp(-np.arange(101) / 5.0)[:, None]).pace == pytest.approx(0, abs=1e-6)
    assert Walk(steps, np.stack([np.cos(np.arange(101)), np.sin(np.arange(101))], axis=1)).pace == pytest.approx(1)
    still = Walk(steps, np.zeros((101, 3)))
    assert still.pace is None
    assert set(still.away[1]) == {None}


def test_bptt_stands_beside_the_seeds_of_the_methods_with_a_count():
    found = [tune("as-published", "bptt", 100, 0, seed) for seed in (0, 1)]
    found += [tune("as-published", "tbptt", 100, 50, seed) for seed in (0, 1)] + [tune("as-published", "tbptt", 100, 100, 0)]
    (mode,) = sort(found).all
    assert {cell.K: [trial.seed for trial in cell.of("bptt")] for cell in mode.cells} == {50: [0, 1], 100: [0]}
