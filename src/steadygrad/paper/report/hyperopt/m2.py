"""M2: the training loss of the last meta step: Neumann-RBP matches BPTT and outperforms the others."""

from __future__ import annotations

from functools import partial

from steadygrad.paper.report.hyperopt.m1 import beside_exact, curves, end, final, neumann_lowest
from steadygrad.paper.report.hyperopt.trials import Cell, Mode
from steadygrad.paper.report.panels import Points
from steadygrad.paper.report.style import look
from steadygrad.paper.report.text import percent, short
from steadygrad.paper.report.trial import WHOLE, Trial, median, ratio

__all__ = ["curves"]  # for the template
MATCHES = 1.5
"""Two losses match that are within this factor of each other."""
GENERALLY = 0.75
"""The paper says "generally": in at least this share of the settings."""
TEST = ("test_loss", "untuned_test_loss", "test_accuracy", "untuned_test_accuracy")


def trained(trial: Trial) -> Points | None:
    """The loss along the training of the last meta step."""
    found = trial.result.get("last_training")
    return (found["step"], found["loss"]) if found and found["loss"] else None


def training_end(trial: Trial) -> float | None:
    found = trained(trial)
    return end(found[1]) if found else None


def matches(mode: Mode) -> tuple[bool | None, list[Cell], list[float]]:
    """Neumann-RBP's end relative to BPTT's, in each setting: is it near it in most?"""
    ratios = {cell.title: beside_exact(cell, "neumann-rbp", training_end) for cell in mode.cells}
    cells = mode.evidence(lambda cell: ratios[cell.title] is not None)
    known = [ratios[cell.title] or 0.0 for cell in cells]
    return sum(map(inside, known)) >= GENERALLY * len(known) if known else None, cells, known


def inside(value: float) -> bool:
    return 1 / MATCHES <= value <= MATCHES


outperforms = partial(neumann_lowest, measure=training_end)


def weighed(trial: Trial) -> Points | None:
    """The mean weight of images with a wrong label relative to that of the others, over meta steps."""
    found = trial.result.get("weight") or {}
    if not found.get("wrong"):
        return None
    values = [ratio(wrong, right) for wrong, right in zip(found["wrong"], found["right"], strict=True)]
    return range(1, len(values) + 1), values


def tested(mode: Mode) -> bool:
    return any(trial.result.get("test_accuracy") is not None for trial in mode.tuned)


def worth_rows(mode: Mode) -> list[tuple[str, ...]]:
    """The last training relative to BPTT's, its test where there is one, and the last cosine to BPTT's hypergradient."""
    rows: dict[tuple[str, ...], tuple[str, ...]] = {}
    for cell in mode.cells:
        for method in cell.methods():
            trials = cell.of(method)
            beside = "1" if method == "bptt" else short(beside_exact(cell, method, training_end))
            test = [median(trial.result.get(name) for trial in trials) for name in TEST] if tested(mode) else []
            shown = [short(v) if v is None or "loss" in name else percent(v) for name, v in zip(TEST, test, strict=False)]
            last = short(
                median(cosines[-1] for trial in trials if (cosines := (trial.result.get("reference") or {}).get("cosine")))
            )
            place = (look(method).label, str(cell.T), "–" if method in WHOLE else str(cell.K))
            rows.setdefault(place, (short(final(cell, method, training_end)), beside, *shown, last, str(len(trials))))
    return [(*place, *numbers) for place, numbers in rows.items()]
