"""P1 to P4: the series is BPTT, truncated BPTT and RBP from zero, and how far K terms are off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.panels import Panel, Points, draw
from steadygrad.paper.report.text import short
from steadygrad.paper.report.trial import Trial, median

EQUAL = 1e-11
"""Two gradients in float64 are equal that differ by less, relative to their norm: rounding is 1e-16 a step, and grows."""
SLACK = 1e-9
"""By which a measured norm may exceed its bound: records keep six digits."""
METHODS = {"neumann": "neumann-rbp", "uniform": "rbp-uniform", "cg": "cg-rbp"}


def worst(trials: Iterable[Trial], key: str) -> float | None:
    """The largest relative difference of the two gradients that a proposition calls equal, over all maps and K."""
    found = [trial.result[key] for trial in trials]
    return max((max(of) if isinstance(of, list) else of for of in found), default=None)


def equal(found: Any, key: str) -> bool | None:
    difference = worst(found.series, key)
    return None if difference is None else difference < EQUAL


def inside(found: Any) -> list[bool]:
    """Of each map: is the measured error within the bound of P3?"""
    return [over(trial) <= SLACK for trial in found.series]


def over(trial: Trial) -> float:
    """By how much the measured error exceeds the bound, relative to it; negative where it does not."""
    pairs = zip(trial.result["p3"], trial.result["bound"], strict=True)
    floor = 1e-12 * trial.result["bound"][0]  # the error cannot be measured below rounding
    return max((error - bound) / bound for error, bound in pairs if bound > floor)


def centre(trials: Iterable[Trial], key: str, place: int | None = None) -> float | None:
    """The median over maps of a number, or of one of a list of them."""
    return median(trial.result[key] if place is None else trial.result[key][place] for trial in trials)


def errors(found: Any) -> Picture:
    def curves(trials: Iterable[Trial], keys: dict[str, str]) -> dict[str, list[Points]]:
        return {method: [(trial.result["K"], trial.result[key]) for trial in trials] for key, method in keys.items()}

    upper: list[Panel] = []
    lower: list[Panel] = []
    for trials in map(found.at, found.radii):
        title = f"ρ(J) = {short(centre(trials, 'spectral_radius'))}"
        upper.append(Panel(curves(trials, METHODS), title, "", "relative error", log=True, height=(1e-16, 30)))
        bounded = curves(trials, {"p3": "neumann-rbp", "bound": "bound"})
        lower.append(Panel(bounded, "", "K", "norm of the error", log=True, height=(1e-12, 1e6)))
    return draw([upper, lower], height=2.1)
