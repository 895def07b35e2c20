"""M2: the training loss of the last meta step: Neumann-RBP matches BPTT and outperforms the others."""

from __future__ import annotations

from functools import partial

from steadygrad.paper.report.hyperopt.m1 import LEVEL, RIVALS, end, panels, part, table_of_panels
from steadygrad.paper.report.hyperopt.trials import WHOLE, Cell, HyperoptTrial, Mode, Sorted
from steadygrad.paper.report.panels import BANDS, Points
from steadygrad.paper.report.section import Figure, Part, Table
from steadygrad.paper.report.style import look
from steadygrad.paper.report.text import number, percent, short, span
from steadygrad.paper.report.trial import median, ratio
from steadygrad.paper.report.verdicts import Outcome

MATCHES = 1.5
"""Two losses match that are within this factor of each other."""
GENERALLY = 0.75
"""The paper says "generally": in at least this share of the settings."""
TEST = ("test_loss", "untuned_test_loss", "test_accuracy", "untuned_test_accuracy")


def parts(found: Sorted) -> list[Part]:
    limit = f"Limit: a factor of {number(MATCHES)} in {percent(GENERALLY)} of the settings."
    return [
        part(
            found, "M2a", "Training loss of the last meta step: Neumann-RBP matches BPTT", "“generally matches”", matches, limit
        ),
        part(found, "M2b", "… and is below RBP's and TBPTT's", "“outperforms the others”", outperforms, ""),
    ]


def matches(mode: Mode) -> tuple[Outcome, list[Cell], str]:
    cells = mode.judged(lambda cell: beside_exact(cell, "neumann-rbp") is not None)
    if not cells:
        return Outcome.MISSING, [], ""
    ratios = [beside_exact(cell, "neumann-rbp") or 0.0 for cell in cells]
    inside = [1 / MATCHES <= value <= MATCHES for value in ratios]
    words = f"{span(ratios)} times BPTT's, within the limit in {sum(inside)} of {len(inside)}"
    return Outcome.of(sum(inside) >= GENERALLY * len(inside)), cells, words


def outperforms(mode: Mode) -> tuple[Outcome, list[Cell], str]:
    cells = mode.judged(lambda cell: all(last(cell, method) is not None for method in ("neumann-rbp", *RIVALS)))
    if not cells:
        return Outcome.MISSING, [], ""
    below = [all((last(c, "neumann-rbp") or 0) < (1 - LEVEL) * (last(c, rival) or 0) for rival in RIVALS) for c in cells]
    return Outcome.of(all(below)), cells, f"below both in {sum(below)} of {len(below)} settings"


def last(cell: Cell, method: str) -> float | None:
    """Where the training loss of the last meta step ends, median over seeds."""
    return median(end_of(trial) for trial in cell.of(method))


def end_of(trial: HyperoptTrial) -> float | None:
    found = trial.result.get("last_training")
    return end(found["loss"]) if found and found["loss"] else None


def beside_exact(cell: Cell, method: str) -> float | None:
    """The same relative to BPTT's from the same seed."""
    return median(ratio(end_of(trial), end_of(exact)) for trial, exact in cell.pairs(method))


def trained(trial: HyperoptTrial) -> Points | None:
    found = trial.result.get("last_training")
    return (found["step"], found["loss"]) if found and found["loss"] else None


def weighed(trial: HyperoptTrial) -> Points | None:
    found = trial.result.get("weight") or {}
    if not found.get("wrong"):
        return None
    values = [ratio(wrong, right) for wrong, right in zip(found["wrong"], found["right"], strict=True)]
    return range(1, len(values) + 1), values


def figures(found: Sorted) -> list[Figure]:
    made: list[Figure] = []
    for mode in found.tuned:
        if kept := [trial for trial in mode.tuned if trained(trial)]:
            caption = f"M2, {mode.title.lower()}: training loss along the training of the last meta step. {BANDS}"
            draw = partial(table_of_panels, mode, trained, "training step", "training loss")
            made.append(Figure(f"hyperopt-m2-{mode.name}", caption, f"Training loss in panels: {panels(mode)}.", draw, len(kept)))
        if kept := [trial for trial in mode.tuned if weighed(trial)]:
            caption = (
                f"{mode.title}: the mean weight that tuning gives to training images with a wrong label, relative to that of "
                f"those with the right one. Nobody told it which. {BANDS}"
            )
            draw = partial(table_of_panels, mode, weighed, "meta step", "weight, wrong / right label")
            made.append(Figure(f"hyperopt-m2-weights-{mode.name}", caption, f"Curves from 1: {panels(mode)}.", draw, len(kept)))
    return made


def tables(found: Sorted) -> list[Table]:
    return [table(mode) for mode in found.tuned]


def table(mode: Mode) -> Table:
    """The last training relative to BPTT's, and its test where there is one."""
    rows: dict[tuple[str, ...], tuple[str, ...]] = {}
    tested = any(trial.result.get("test_accuracy") is not None for trial in mode.tuned)
    for cell in mode.cells:
        for method in cell.methods():
            trials = cell.of(method)
            numbers = [short(last(cell, method)), "1" if method == "bptt" else short(beside_exact(cell, method))]
            for name in TEST if tested else ():
                value = median(trial.result.get(name) for trial in trials)
                numbers.append(short(value) if value is None or "loss" in name else percent(value))
            numbers += [short(median(last_cosine(trial) for trial in trials)), str(len(trials))]
            rows.setdefault((look(method).label, str(cell.T), "–" if method in WHOLE else str(cell.K)), tuple(numbers))
    test = ("test loss", "untuned", "test accuracy", "untuned") if tested else ()
    rejected = sum(trial.result.get("rejected") or 0 for trial in mode.tuned)
    return Table(
        f"hyperopt-m2-worth-{mode.name}",
        f"M2, {mode.title.lower()}: the training of the last meta step, and the network that it leaves.",
        ("method", "T", "K", "training loss", "÷ BPTT's", *test, "cosine, last", "seeds"),
        tuple((*place, *numbers) for place, numbers in rows.items()),
        "Training loss: median of the last tenth of the training; ÷ BPTT's: from the same seed. Cosine, last: of the "
        "hypergradient to BPTT's when they were last compared. Medians over seeds, as many as the last column says. Meta steps "
        f"that were taken back, since something in them was not finite: {number(rejected)}."
        + (" A lower training loss is no merit here: the loss on other images is tuned." if tested else ""),
    )


def last_cosine(trial: HyperoptTrial) -> float | None:
    found = (trial.result.get("reference") or {}).get("cosine")
    return found[-1] if found else None
