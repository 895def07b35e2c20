"""G3: curves: the state becomes steady, and Neumann-RBP goes with TBPTT through training."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.citation.trials import NAMES, PAIR, gradients, heading, mean, seeds_of_pair, validation
from steadygrad.paper.report.panels import DOTTED, Panel, Points, draw, stacked
from steadygrad.paper.report.section import Findings
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.trial import Group, Trial, median, middle
from steadygrad.paper.report.verdicts import SEEDS, Outcome

__all__ = ["NAMES", "median"]  # for the template
STEADY = 0.01
"""Steady is where the last step moves the state by less than this share of its norm."""
CLOSE = 5.0
"""Curves go together if the means of the validation accuracies differ by less than this, in points, at the last epoch."""
ADJOINT = ("rbp-uniform", "cg-rbp", "neumann-rbp", "auto")
"""The methods that solve the adjoint equation, hence have a residual of it."""


def of_pair(place: Group, key: str) -> float | None:
    """The median of the last that was measured in Neumann-RBP's and TBPTT's trials."""
    trials = [trial for method in PAIR for trial in place.of(method)]
    return middle(trials, lambda t: t.result["spectral_radius"] if key == "spectral_radius" else t.latest(key))


def steady(place: Group) -> Outcome:
    moved = of_pair(place, "difference_relative") if all(map(place.of, PAIR)) else None
    return Outcome.of(None if moved is None else moved < STEADY)


def rests(found: Found, graph: str) -> Findings:
    """A state that does not come to rest is a premise that fails."""
    published, corrected = found.judged(steady, graph, seeds_of_pair)
    return published and replace(published, premise=published.outcome is Outcome.YES), corrected


def apart(place: Group) -> float:
    one, other = (100 * statistics.fmean(trial.latest("accuracy") for trial in place.of(method)) for method in PAIR)
    return abs(one - other)


def together(place: Group) -> Outcome:
    return Outcome.of(apart(place) < CLOSE if all(map(place.of, PAIR)) else None)


def longer(found: Found, graph: str, place: Group | None = None) -> list[Group]:
    """The trials as published that have what it takes, the longest first; those that are longer than the place."""
    known = [one for one in found.lengths(graph) if together(one) is not Outcome.MISSING]
    return [one for one in known if place is None or one.setting["epochs"] > place.setting["epochs"]]


def goes(found: Found, graph: str) -> Findings:
    """Judged by the trials with most seeds, three being enough, then by the longest; the longest of all show the trend."""
    published, corrected = found.judged(together, graph, seeds_of_pair)
    if published is not None:
        place = max(longer(found, graph), key=lambda one: (min(seeds_of_pair(one), SEEDS), one.setting["epochs"]))
        trend = [together(one) for one in longer(found, graph, place)] or [Outcome.MISSING]
        seeds, length = seeds_of_pair(place), place.length
        published = replace(published, outcome=together(place), of=place, seeds=seeds, length=length, longer=trend[0])
    return published, corrected


def drawn(found: Found, graph: str) -> list[Group]:
    """The modes of a graph, and trials at the paper's length."""
    full = [place for place in found.lengths(graph)[:-1] if place.length.full]
    return [place for place in (*found.on(graph), *full) if gradients(place)]


def by_epoch(trial: Trial, key: str, scale: float = 1) -> Points:
    return trial.seen("epoch"), [None if value is None else scale * value for value in trial.seen(key)]


def by_step(trial: Trial, key: str) -> Points:
    values = trial.result["difference"][key]
    return range(1, 1 + len(values)), values


def learning(places: Sequence[Group]) -> Picture:
    """Training loss and validation accuracy over epochs, a row a mode."""
    rows: list[list[Panel]] = []
    for place in places:
        loss = place.curves(lambda t: (range(len(t.result["training_loss"])), t.result["training_loss"]), gradients(place))
        accuracy = place.curves(lambda t: by_epoch(t, "accuracy", 100), gradients(place))
        alone = mean(place, "baseline", validation)
        left = Panel(loss, f"{heading(place)}: training loss", "epoch", "cross-entropy", log=True, mean=True)
        rows.append([left, Panel(accuracy, f"{heading(place)}: validation", "epoch", "accuracy, %", level=alone, mean=True)])
    return draw(rows, {"baseline": DOTTED})


def differences(places: Sequence[Group]) -> Picture:
    """How far each step moves the state of the trained networks, in the paper's scaling and relative, a row a mode."""
    rows: list[list[Panel]] = []
    for place in places:
        scaled, relative = (place.curves(lambda t, k=k: by_step(t, k), gradients(place)) for k in ("scaled", "relative"))
        title, top = f"{heading(place)}: as the paper plots it", 1.05 * ceiling(place) if clipped(place) else None
        left = Panel(scaled, title, "step t", "‖hₜ − hₜ₋₁‖ / elements", height=(0, top), mean=True)
        title = f"{heading(place)}: relative"
        rows.append([left, Panel(relative, title, "step t", "‖hₜ − hₜ₋₁‖ / ‖hₜ‖", log=True, level=STEADY, mean=True)])
    return draw(rows, {"1 %": DOTTED})


def heights(place: Group) -> list[float]:
    """The highest of each method's curve in the paper's scaling."""
    means = (stacked([trial.result["difference"]["scaled"] for trial in place.of(method)]) for method in gradients(place))
    some = [values[:, np.isfinite(values).any(axis=0)] for values in means]  # a step that nobody measured has no mean
    return [float(np.nanmax(np.nanmean(values, axis=0))) for values in some if values.size]


def ceiling(place: Group) -> float:
    """Three times the middle height: what is above hides all the others."""
    return 3 * float(np.median(heights(place) or [np.inf]))


def clipped(place: Group) -> bool:
    return any(height > 2 * ceiling(place) for height in heights(place))


def adjoint(places: Sequence[Group]) -> Picture:
    """The relative difference of the last step, and the residual of the adjoint equation, through training, a row a mode."""
    rows: list[list[Panel]] = []
    for place in places:
        moves = place.curves(lambda t: by_epoch(t, "difference_relative"), gradients(place))
        residual = place.curves(lambda t: by_epoch(t, "adjoint_residual"), [m for m in gradients(place) if m in ADJOINT])
        moved, left = r"$\|h_T - h_{T-1}\|\,/\,\|h_T\|$", "‖b − (I − Jᵀ)z‖ / ‖b‖"
        first = Panel(moves, f"{heading(place)}: last step", "epoch", moved, log=True, height=(1e-5, 2), mean=True)
        rows.append([first, Panel(residual, f"{heading(place)}: adjoint residual", "epoch", left, log=True, level=1, mean=True)])
    return draw(rows, {"as large as b": DOTTED})
