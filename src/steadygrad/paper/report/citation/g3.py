"""G3: curves: the state becomes steady, and Neumann-RBP goes with TBPTT through training; and what sg.diagnose says of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.citation.trials import PAIR, gradients, longer, mean, seeds_of_pair, validation
from steadygrad.paper.report.panels import DOTTED, Panel, Points, draw, numbered
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.text import short, unbroken
from steadygrad.paper.report.trial import Group, Trial, median
from steadygrad.paper.report.verdicts import SEEDS, Finding, Findings, Outcome

STEADY = 0.01
"""Steady is where the last step moves the state by less than this share of its norm."""
CLOSE = 5.0
"""Curves go together if the means of the validation accuracies differ by less than this, in points, at the last epoch."""


def of_pair(place: Group, name: str) -> float | None:
    """The median of a number over Neumann-RBP's and TBPTT's trials."""
    return median(trial.value(name) for method in PAIR for trial in place.of(method))


def steady(place: Group) -> Outcome:
    moved = of_pair(place, "difference_relative") if all(map(place.of, PAIR)) else None
    return Outcome.of(None if moved is None else moved < STEADY)


def rests(found: Found, graph: str) -> Findings:
    """A state that does not come to rest is a premise that fails."""
    published, corrected = found.judged(steady, graph, seeds_of_pair)
    return replace(published, premise=published.outcome is Outcome.YES), corrected


def apart(place: Group) -> float:
    one, other = (100 * statistics.fmean(place.over(method, "accuracy")) for method in PAIR)
    return abs(one - other)


def together(place: Group) -> Outcome:
    return Outcome.of(apart(place) < CLOSE if all(map(place.of, PAIR)) else None)


def goes(found: Found, graph: str) -> Findings:
    """Judged by the trials with most seeds, three being enough, then by the longest; the longest of all show the trend."""
    published, corrected = found.judged(together, graph, seeds_of_pair)
    known = [place for place in found.lengths(graph) if seeds_of_pair(place)]
    if known:
        place = max(known, key=lambda one: (min(seeds_of_pair(one), SEEDS), one.length.ran))
        published = Finding(together(place), place, seeds_of_pair(place), place.length)
    trend = [together(one) for one in longer(found, graph, published)] or [Outcome.MISSING]
    return replace(published, longer=trend[0]), corrected


def learning(places: Sequence[Group]) -> Picture:
    """Training loss and validation accuracy over epochs, a row a mode."""

    def loss(trial: Trial) -> Points:
        return numbered(trial.result["training_loss"], 0)

    def accuracy(trial: Trial) -> Points:
        return trial.seen("epoch"), [None if value is None else 100 * value for value in trial.seen("accuracy")]

    rows: list[list[Panel]] = []
    for place in places:
        losses, accuracies = (place.curves(series, gradients(place)) for series in (loss, accuracy))
        alone = mean(place, "baseline", validation)
        left = Panel(losses, f"{place.heading}: training loss", "epoch", "cross-entropy", log=True)
        rows.append([left, Panel(accuracies, "validation", "epoch", "accuracy, %", level=alone)])
    return draw(rows, {"baseline": DOTTED})


def differences(places: Sequence[Group]) -> Picture:
    """How far each step moves the state of the trained networks, in the paper's scaling and relative, a row a mode."""
    rows: list[list[Panel]] = []
    for place in places:
        of = gradients(place)
        scaled, relative = (place.curves(lambda t, k=k: numbered(t.result["difference"][k]), of) for k in ("scaled", "relative"))
        left = Panel(scaled, f"{place.heading}: the paper's", "step t", "‖hₜ − hₜ₋₁‖ / elements", log=True)
        rows.append([left, Panel(relative, "relative", "step t", "‖hₜ − hₜ₋₁‖ / ‖hₜ‖", log=True, level=STEADY)])
    return draw(rows, {"1 %": DOTTED})


def diagnosed(place: Group, method: str) -> list[str]:
    """‖J‖₂, σ_min(I − J) and the verdict of sg.diagnose; a number that it did not settle is a bound."""
    found: dict[str, Any] = next((d for trial in place.of(method) if (d := trial.result.get("diagnosis"))), {})
    if not found:
        return ["–"] * 3
    signs = {"norm": "≥ ", "min_singular_value": "≤ "}
    bounds = [(sign if name in found["not_settled"] else "") + short(found[name]) for name, sign in signs.items()]
    return [*bounds, "trust" if found["trustworthy"] else ", ".join(map(unbroken, found["findings"]))]
