"""The citation section of the report: verdicts, tables and sentences come from the records, both ways."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steadygrad.records import Record
from steadygrad.report import Figure, Table
from steadygrad.report.citation import section
from steadygrad.report.section import Section


def records_of(
    accuracies: dict[str, float], seeds: int = 4, graph: str = "cora", mode: str = "corrected", moved: float = 1e-4
) -> list[Record]:
    """Records as `run` leaves them, with these accuracies and a tenth of a point between the seeds."""
    made = []
    for method, accuracy in accuracies.items():
        for seed in range(seeds):
            value = accuracy + 0.001 * seed
            seen = {
                "epoch": [0, 1],
                "accuracy": [0.2, value],
                "difference_relative": [0.1, moved],
                "difference_scaled": [1e-4, 1e-7],
            }
            result = {"test_accuracy": value, "validation_accuracy": value, "training_loss": [2.0, 1.0], "best_epoch": 1}
            result |= {"validation": {**seen, "adjoint_residual": [0.1, None]}, "evaluations": 20, "products": 4}
            result |= {"difference": {"scaled": [0.1, 1e-7], "relative": [0.1, moved]}, "spectral_radius": 0.9}
            config = {"graph": graph, "mode": mode, "method": method, "seed": seed, "epochs": 2, "diagnose": seed == 0}
            made.append(Record("citation", config, result, None))
    return made


PAPERS = {
    "baseline": 0.40,
    "bptt": 0.25,
    "tbptt": 0.46,
    "rbp": 0.29,
    "cg-rbp": 0.39,
    "neumann-rbp": 0.46,
    "artbp-uniform": 0.28,
    "artbp-poisson": 0.42,
}


def verdicts(records: list[Record]) -> dict[str, str]:
    return {claim.id: claim.verdict for claim in section(records).claims}


def test_verdicts_follow_the_records():
    both = [*records_of(PAPERS), *records_of(PAPERS, mode="as-published")]
    assert verdicts(both) == {"G1": "reproduced", "G2": "reproduced", "G3": "reproduced"}
    moving = [*records_of(PAPERS), *records_of({**PAPERS, "bptt": 0.46}, mode="as-published", moved=0.1)]
    assert verdicts(moving) == {"G1": "reproduced in one mode", "G2": "reproduced", "G3": "reproduced in one mode"}
    level = {**PAPERS, "artbp-poisson": 0.46, "rbp": 0.46}
    neither = [*records_of(level), *records_of(level, mode="as-published", moved=0.1)]
    assert verdicts(neither) == {"G1": "not reproduced", "G2": "not reproduced", "G3": "reproduced in one mode"}


def test_a_graph_that_fails_fails_its_mode():
    failed = records_of({**PAPERS, "tbptt": 0.6}, graph="pubmed")
    assert verdicts([*records_of(PAPERS), *failed, *records_of(PAPERS, mode="as-published")])["G1"] == "reproduced in one mode"


def test_too_few_seeds_and_the_planted_graph_give_no_verdict():
    few = [*records_of(PAPERS, seeds=2), *records_of(PAPERS, seeds=2, mode="as-published")]
    assert verdicts(few)["G1"] == verdicts(few)["G2"] == "no data"
    assert set(verdicts(records_of(PAPERS, graph="planted")).values()) == {"no data"}
    assert set(verdicts([]).values()) == {"no data"}


def tables(made: Section) -> dict[str, Table]:
    return {block.name or block.caption: block for block in made.blocks if isinstance(block, Table)}


def prose(made: Section) -> str:
    return " ".join(block for block in made.blocks if isinstance(block, str))


BOTH = [*records_of({**PAPERS, "appnp": 0.7, "auto": 0.7}), *records_of(PAPERS, mode="as-published", moved=0.1)]


def test_section_has_the_papers_numbers_beside_ours():
    made = tables(section(BOTH))
    accuracies = made["citation-g1-cora"]
    row = next(row for row in accuracies.rows if row[0] == "Neumann-RBP")
    assert row == ("Neumann-RBP", "46.63 ± 8.3", "46.15 ± 0.1", "46.15 ± 0.1", "46.15 ± 0.1", "46.15 ± 0.1")
    assert "(as published: 4; corrected: 4)" in accuracies.caption
    assert [row[0] for row in accuracies.rows][0::8] == ["Baseline", "auto"]
    assert made["citation-g2"].rows[0] == ("ARTBP, uniform", "27.88 ± 3.2", "28.15 ± 0.1", "28.15 ± 0.1")


def test_unfinished_runs_say_how_many_seeds_there_are():
    made = section([*records_of({"tbptt": 0.5}, seeds=3), *records_of({"artbp-uniform": 0.4}, seeds=1)])
    assert "(corrected: 1 to 3)" in tables(made)["citation-g1-cora"].caption


def test_figures_draw_both_modes():
    figures = [block for block in section(BOTH).blocks if isinstance(block, Figure)]
    assert [figure.name for figure in figures] == ["citation-g3-cora", "citation-g3-cora-difference", "citation-g3-cora-adjoint"]
    for figure in figures:
        assert len(figure.draw().axes) == 4
        assert figure.records == len(BOTH) - 3 * 4  # two baselines and APPNP have no curves


def test_lines_are_geometric_means_where_the_axis_is_logarithmic():
    records = records_of({"tbptt": 0.5}, seeds=2)
    for record, loss in zip(records, (1.0, 100.0), strict=True):
        record.result["training_loss"] = [loss, 2 * loss]
    picture = next(block for block in section(records).blocks if isinstance(block, Figure)).draw()
    loss, accuracy = (axis.get_lines()[0].get_ydata() for axis in picture.axes)
    assert loss[0] == pytest.approx(10)
    assert accuracy[1] == pytest.approx(50.05)


def test_a_curve_far_above_the_others_does_not_hide_them():
    records = records_of(PAPERS)
    for record in records:
        if record.config["method"] == "rbp":
            record.result["difference"]["scaled"] = [50.0, 1e-7]
    figure = next(b for b in section(records).blocks if isinstance(b, Figure) and b.name == "citation-g3-cora-difference")
    assert "leave the panel" in figure.caption
    assert figure.draw().axes[0].get_ylim()[1] == pytest.approx(1.05 * 3 * 0.1)
    assert not any("leave the panel" in block.caption for block in section(BOTH).blocks if isinstance(block, Figure))


def test_diagnosis_shows_the_difference_norm_in_both_scalings():
    made = section(BOTH)
    row = next(row for row in tables(made)["citation-g3-diagnosis-cora-as-published"].rows if row[0] == "Neumann-RBP")
    assert row == ("Neumann-RBP", "0.1", "1.0e-07", "0.9", "–", "–", "0.1", "–")
    assert "Cora, as published: no method is at a steady state; the last step moves it by 10 % of its norm" in prose(made)
    assert "Cora, corrected: all methods are at a steady state; the last step moves it by 0.01 % of its norm" in prose(made)


def test_diagnosed_trials_show_bounds_and_findings():
    records = records_of({"neumann-rbp": 0.4}, seeds=1, mode="as-published")
    found = {"trustworthy": False, "findings": ["not steady", "expansive"], "norm": 12.3456, "min_singular_value": 0.05}
    records[0].result["diagnosis"] = {**found, "not_settled": ["min_singular_value"]}
    records[0].result["spectral_radius_initial"] = 1.86
    table = tables(section(records))["citation-g3-diagnosis-cora-as-published"]
    assert table.rows[0][4:] == ("12.3", "≤ 0.05", "0.1", "not\u00a0steady, expansive")
    assert table.caption.endswith("before training ρ(J) = 1.86.")


def test_cost_has_evaluations_products_seconds_and_memory():
    records = records_of({"auto": 0.7, "appnp": 0.7}, seeds=1)
    measured = {"milliseconds_per_epoch": 12.0, "training_seconds": 3.0, "epoch_mb": 7.25, "peak_mb": 512.0}
    records[0] = replace(records[0], measured=measured)
    table = next(table for table in tables(section(records)).values() if "costs" in table.caption)
    assert table.head == ("method", "F an epoch", "products", "ms an epoch", "MB an epoch", "training, s", "peak MB")
    assert table.rows[0] == ("auto", "10", "2", "12", "7.25", "3", "512")


def test_what_five_steps_leave_is_worked_out_from_the_radius():
    records = [replace(r, config={**r.config, "steps": 5}) for r in BOTH]
    text = prose(section(records))
    assert (
        "ρ(J) = 0.900, so with K = 5 Neumann-RBP has 1 − ρᴷ⁺¹ = 47 % of it, TBPTT 1 − ρᴷ = 41 %, and RBP 59 % of its start"
        in text
    )
    assert "Neumann-RBP −24.0 ± 0.0" in text
    assert "Cora +0.00 ± 0.00 points over 4 seeds" in text


def test_shorter_runs_than_the_papers_are_named():
    long = [replace(r, config={**r.config, "epochs": 500}) for r in records_of({"tbptt": 0.5}, seeds=2, mode="as-published")]
    text = prose(section([*BOTH, *long]))
    assert "As published was run for 2 epochs on Cora instead of 2,000; besides, there are 2 trials of up to 500." in text


def test_reasons_name_what_is_behind_a_failure():
    level = {**PAPERS, "bptt": 0.6, "artbp-uniform": 0.6}
    g1, g2, _ = section([*records_of(level), *records_of(level, mode="as-published", moved=0.1)]).claims
    assert "As published the state is not steady (G3)" in g1.reason
    assert "Corrected, the exact gradient is the better one" in g1.reason
    assert "the order is reversed" in g2.reason
    assert "not both above BPTT (−14.0 ± 0.0)" in g1.reason
    assert "best other 60.1 (BPTT)" in g1.ours


def test_both_have_to_be_above_the_others():
    records = [*records_of({**PAPERS, "tbptt": 0.455, "cg-rbp": 0.457}), *records_of(PAPERS, mode="as-published")]
    assert verdicts(records)["G1"] == "reproduced in one mode"
    assert "not both above CG-RBP (−0.2 ± 0.0)" in section(records).claims[0].reason


def test_level_is_a_point_or_what_cannot_be_told_apart():
    near = section([*records_of({**PAPERS, "tbptt": 0.468})]).claims[0]
    assert "minus TBPTT −0.8 ± 0.0 over 4 seeds, level" in near.reason
    far = section([*records_of({**PAPERS, "tbptt": 0.475})]).claims[0]
    assert "not level" in far.reason


def test_longer_trials_are_told_apart():
    long = [replace(r, config={**r.config, "epochs": 500}) for r in records_of({"neumann-rbp": 0.5}, seeds=1)]
    made = section([*records_of(PAPERS), *long])
    assert tables(made)["Trials with other settings than those of their mode."].rows == (
        ("Cora, corrected", "epochs 500", "Neumann-RBP", "0", "2.000", "1.000", "1", "50.00", "50.00"),
    )
    assert "46.2" in made.claims[0].ours
