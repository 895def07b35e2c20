"""The curves of the Hopfield section."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure as Picture

from steadygrad.report.hopfield.claims import STEADY, WITHIN
from steadygrad.report.hopfield.panels import PASSES, lines
from steadygrad.report.hopfield.pictures import unpacked
from steadygrad.report.hopfield.trials import Sorted, Trial, Variant, left_of_start, seen_both
from steadygrad.report.panels import DASHED, DOTTED, grid, legend, same_height
from steadygrad.report.style import curve

LOSS = "mean L1 loss a pixel"
MOVED = "‖hₜ − hₜ₋₁‖"
ADJOINT = ("rbp", "rbp-zeros", "cg-rbp", "neumann-rbp", "auto")
"""The methods that solve the adjoint equation, hence have a residual of it."""
COUNTS = {10: ("o", "#D55E00"), 20: ("^", "#0072B2"), 30: ("s", "#000000")}
FLOOR = 1e-8
"""What float32 cannot resolve is not shown."""


def h1(found: Sorted) -> Picture:
    """Training and validation loss over passes, a row a mode."""
    picture, rows = grid(len(found.all), 2)
    for mode, axes in zip(found.all, rows, strict=True):
        lines(axes[0], mode, mode.methods(), lambda trial: trial.training, first=1)
        lines(axes[1], mode, mode.methods(), lambda trial: trial.seen("l1"))
        half = 0.5 * float(np.median([trial.result["initial_loss"] for trial in mode.trials]))
        for axis, what in zip(axes, ("training", "validation"), strict=True):
            axis.axhline(half, **DOTTED)
            axis.set(title=f"{mode.title}: {what}", xlabel=PASSES, ylabel=LOSS, yscale="log")
        same_height(axes)
    legend(picture, rows, **{"half the initial loss": DOTTED})
    return picture


def h4(found: Sorted) -> Picture:
    """‖h_t − h_{t−1}‖ of each step, a row a mode."""
    picture, rows = grid(len(found.all), 3)
    kinds = (("clean input", "difference_clean"), ("corrupted", "difference"), ("corrupted, absolute", "difference"))
    for mode, axes in zip(found.all, rows, strict=True):
        for axis, (words, key), norm in zip(axes, kinds, ("relative", "relative", "absolute"), strict=True):
            lines(axis, mode, mode.methods(), lambda trial, key=key, norm=norm: trial.result[key][norm], first=1)
            axis.axvline(WITHIN, **DOTTED)
            axis.set(title=words, xlabel="step t", yscale="log")
            axis.set(ylim=(FLOOR, 3), ylabel=f"{MOVED} / ‖hₜ‖") if norm == "relative" else axis.set(ylabel=MOVED)
        for axis in axes[:2]:
            axis.axhline(STEADY, **DOTTED)
        axes[0].set_title(f"{mode.title}: clean")
        axes[2].set_ylim(bottom=max(axes[2].get_ylim()[0], 1e-6))
    legend(picture, rows, **{f"step {WITHIN}; {STEADY:.0%}": DOTTED})
    return picture


def energy(found: Sorted) -> Picture:
    """How much of the fall of the energy is still to come, along retrieval."""
    picture, (axes,) = grid(1, len(found.all))
    for mode, axis in zip(found.all, axes, strict=True):
        lines(axis, mode, mode.methods(), remaining, first=0)
        axis.set(title=mode.title, xlabel="step t", yscale="log", xlim=(-0.5, 20.5), ylim=(1e-6, 2))
        axis.set_ylabel(r"$(E_t - E_T)\,/\,(E_0 - E_T)$")
    legend(picture, [axes])
    return picture


def remaining(trial: Trial) -> list[float]:
    E = trial.result["energy"]
    fall = E[0] - E[-1]
    return [(value - E[-1]) / fall if fall else 0.0 for value in E]


def jacobian(found: Sorted) -> Picture:
    """ρ(J) and the residual of the adjoint equation through training, a row a mode."""
    picture, rows = grid(len(found.all), 2)
    for mode, axes in zip(found.all, rows, strict=True):
        lines(axes[0], mode, mode.methods(), lambda trial: trial.seen("spectral_radius"))
        axes[0].set(title=f"{mode.title}: spectral radius", ylabel="ρ(J)", xlabel=PASSES, ylim=(0, None))
        adjoint = [method for method in mode.methods() if method in ADJOINT]
        lines(axes[1], mode, adjoint, lambda trial: trial.seen("adjoint_residual"))
        axes[1].set(title=f"{mode.title}: adjoint residual", xlabel=PASSES, ylabel="‖b − (I − Jᵀ)z‖ / ‖b‖", yscale="log")
        axes[1].axhline(1, **DOTTED)
        axes[1].set_xlim(axes[0].get_xlim())
    legend(picture, rows, **{"as large as b": DOTTED})
    return picture


def start(found: Sorted) -> Picture:
    """RBP's measured residual against what its start should leave: a point a validated pass."""
    picture, (axes,) = grid(1, len(found.all))
    for mode, axis in zip(found.all, axes, strict=True):
        for steps in mode.counts:
            marker, colour = COUNTS.get(steps, ("D", "#5A5A5A"))
            x, y = start_points(mode.of("rbp", steps), steps)
            axis.plot(x, y, linestyle="", marker=marker, color=colour, markersize=4, markeredgewidth=0, label=f"K = {steps}")
        axis.axline((1e-6, 1e-6), (1, 1), **DOTTED)
        axis.set(title=mode.title, xlabel="expected: ρᴷ‖z₀‖ / ‖b‖", ylabel="measured residual", xscale="log", yscale="log")
        axis.set(xlim=(1e-6, 1e3), ylim=(1e-6, 1e3))
    legend(picture, [axes], equal=DOTTED)
    return picture


def start_points(trials: Sequence[Trial], steps: int) -> tuple[list[float], list[float]]:
    """Expected and measured, of every validated pass that has both."""
    points: list[tuple[float, float]] = []
    for trial in trials:
        for rho, b, residual in zip(*seen_both(trial), trial.seen("adjoint_residual"), strict=True):
            expected = left_of_start(trial, steps, rho, b)
            if expected is not None and residual is not None and math.isfinite(residual):
                points.append((expected, residual))
    return [x for x, _ in points], [y for _, y in points]


def long(variants: Sequence[Variant]) -> Picture:
    """The training loss of trials with more passes than those of their mode, a panel a network."""
    networks = sorted({network(trial) for variant in variants for trial in variant.trials}, reverse=True)
    picture, (axes,) = grid(1, len(networks))
    for shown, axis in zip(networks, axes, strict=True):
        trials = [trial for variant in variants for trial in variant.trials if network(trial) == shown]
        for trial in trials:
            curve(axis, trial.method, range(1, len(trial.training) + 1), trial.training)
        axis.axhline(constant_loss(trials[0]), **DOTTED)
        axis.axhline(0.5 * trials[0].result["initial_loss"], **DASHED)
        pixels, hidden = shown
        axis.set(title=f"{pixels} / {hidden} / {pixels} neurons", xlabel=PASSES, ylabel=LOSS, yscale="log")
    legend(picture, [axes], **{"best constant image": DOTTED, "half the initial loss": DASHED})
    return picture


def network(trial: Trial) -> tuple[int, int]:
    return trial.config["side"] ** 2, trial.config["hidden"]


def constant_loss(trial: Trial) -> float:
    """The L1 loss of the image that is the pixelwise median of the ten: what a network without memory can reach."""
    share = unpacked(trial.result["images"]["clean"], trial.config["side"]).mean(axis=0)
    return float(np.minimum(share, 1 - share).mean())
