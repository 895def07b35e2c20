"""H4: the hidden state is steady within ten steps; energy and Jacobian there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hopfield.trials import good
from steadygrad.paper.report.panels import DOTTED, Panel, draw, numbered
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.trial import Group, finite, median
from steadygrad.paper.report.verdicts import Outcome

STEADY, WITHIN = 0.01, 10
"""Steady is where the state moves by less than this share of its norm a step; the paper says within ten steps."""
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5)
CLEAN, CORRUPTED = "difference_clean", "difference"
FLOOR = 1e-8
"""What float32 cannot resolve is not shown."""


def steps(setting: Group, key: str = CLEAN, tolerance: float = STEADY) -> list[int | None]:
    return [steady_after(trial.result[key]["relative"], tolerance) for trial in good(setting)]


def steady(setting: Group) -> Outcome:
    if not good(setting) or any(len(t.result[CLEAN]["relative"]) < WITHIN for t in good(setting)):
        return Outcome.MISSING
    return Outcome.of(all(step is not None and step <= WITHIN for step in steps(setting)))


def steady_after(relative: Sequence[float], tolerance: float) -> int | None:
    """The first step from which on every difference is below the tolerance, counted from 1; None if even the last is not."""
    above = [step for step, value in enumerate(relative, 1) if not value < tolerance]
    last = above[-1] if above else 0
    return None if last == len(relative) else last + 1


def radii(setting: Group) -> list[float | None]:
    """The peak of ρ(J) in training, ρ(J) and ‖J‖₂ at the end: medians over trials."""
    peaks = [max(finite(trial.seen("spectral_radius")), default=None) for trial in good(setting)]
    return [median(peaks), *(median(trial.result[key] for trial in good(setting)) for key in ("spectral_radius", "norm"))]


def differences(found: Found) -> Picture:
    about: dict[str, Any] = {"x": "step t", "y": "‖hₜ − hₜ₋₁‖ / ‖hₜ‖", "log": True, "height": (FLOOR, 3)}
    about |= {"level": STEADY, "at": WITHIN}
    rows: list[list[Panel]] = []
    for s in found.shown():
        clean, corrupted = (s.curves(lambda t, key=key: numbered(t.result[key]["relative"])) for key in (CLEAN, CORRUPTED))
        rows.append([Panel(clean, f"{s.heading}: clean", **about), Panel(corrupted, "corrupted", **about)])
    return draw(rows, {f"step {WITHIN}; {STEADY:.0%}": DOTTED})
