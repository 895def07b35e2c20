"""Why RBP fails: what K steps leave of its random start, against the residual that it had and how training ended."""

from __future__ import annotations

import math
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hopfield.trials import norm_of_start
from steadygrad.paper.report.panels import DOTTED, Panel, draw
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.trial import Group, Trial, largest, middle, ratio

COUNTS = {10: ("o", "#D55E00"), 20: ("^", "#0072B2"), 30: ("s", "#000000")}
"""How the points of each K are drawn."""


def exact(setting: Group) -> list[Trial]:
    return setting.of("bptt") or setting.of("neumann-rbp")


def left_of_start(trial: Trial, K: int) -> list[tuple[float, float, float] | None]:
    """ρᴷ‖z₀‖/‖b‖, what K steps leave of RBP's start relative to the cotangent, then ρ and ‖b‖, at every validated pass."""
    seen = zip(trial.seen("spectral_radius"), trial.seen("cotangent"), strict=True)
    return [(rho**K * norm_of_start(trial) / b, rho, b) if rho is not None and b else None for rho, b in seen]


def worst(trial: Trial, K: int, place: int = 0) -> float:
    """ρᴷ‖z₀‖/‖b‖ where it is largest along training; or ρ or ‖b‖ there."""
    return max(filter(None, left_of_start(trial, K)), default=(math.nan,) * 3)[place]


def residual(setting: Group, method: str, K: int) -> float | None:
    """The largest residual of the adjoint equation in training, median over seeds."""
    return middle(setting.of(method, K), lambda trial: largest(trial.seen("adjoint_residual")))


def ends(setting: Group, method: str, K: int) -> float | None:
    """The final training loss relative to BPTT's from the same seed, in the middle of the seeds."""
    return middle(setting.pairs(method, K), lambda pair: ratio(*(trial.result["final_loss"] for trial in pair)) or 0.0)


def at_worst(setting: Group, K: int, place: int = 0) -> float | None:
    """In the middle of BPTT's trials: ρᴷ‖z₀‖/‖b‖ where it is largest, or ρ or ‖b‖ there."""
    return middle(exact(setting), lambda trial: worst(trial, K, place))


def zeros(found: Found) -> list[float]:
    """How training ended from z₀ = 0, over every K and mode."""
    return [value for s in found.all for K in s.counts if (value := ends(s, "rbp-zeros", K)) is not None]


def shown(found: Found) -> list[Trial]:
    return [trial for setting in found.all for K in setting.counts for trial in setting.of("rbp-uniform", K)]


def residuals(found: Found) -> Picture:
    def points(axis: Axes, setting: Group) -> None:
        for K in setting.counts:
            marker, colour = COUNTS.get(K, ("D", "#5A5A5A"))
            pairs = [
                (expected[0], residual)
                for trial in setting.of("rbp-uniform", K)
                for expected, residual in zip(left_of_start(trial, K), trial.seen("adjoint_residual"), strict=True)
                if expected is not None and residual is not None and math.isfinite(residual)
            ]
            x, y = zip(*pairs, strict=True) if pairs else ((), ())
            axis.plot(x, y, linestyle="", marker=marker, color=colour, markersize=4, markeredgewidth=0, label=f"K = {K}")
        axis.axline((1e-6, 1e-6), (1, 1), **DOTTED)
        axis.set(xscale="log", xlim=(1e-6, 1e3), ylim=(1e-6, 1e3))

    words = "expected: ρᴷ‖z₀‖ / ‖b‖", "measured residual"
    return draw([[Panel({}, s.title, *words, log=True, last=partial(points, setting=s)) for s in found.all]], {"equal": DOTTED})
