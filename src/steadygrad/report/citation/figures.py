"""The curves of the citation section: a line a method, the mean over seeds, with a band of a standard deviation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.report.citation.trials import TITLES, Group, Trial
from steadygrad.report.panels import DOTTED, grid, legend, stacked
from steadygrad.report.style import curve

Series = Callable[[Trial], Sequence[float | None]]
ADJOINT = ("rbp", "cg-rbp", "neumann-rbp", "auto")
"""The methods that solve the adjoint equation, hence have a residual of it."""


def learning(groups: Sequence[Group]) -> Picture:
    """G3: training loss and validation accuracy over epochs, a row a mode."""
    picture, rows = grid(len(groups), 2)
    for group, axes in zip(groups, rows, strict=True):
        lines(axes[0], group, group.gradients(), lambda trial: trial.result["training_loss"], by_epoch=False)
        lines(axes[1], group, group.gradients(), lambda trial: [100 * value for value in trial.seen("accuracy")])
        title = TITLES[group.mode]
        axes[0].set(title=f"{title}: training loss", xlabel="epoch", ylabel="cross-entropy", yscale="log")
        axes[1].set(title=f"{title}: validation", xlabel="epoch", ylabel="accuracy, %")
        if alone := group.of("baseline"):
            axes[1].axhline(float(np.mean([trial.validation for trial in alone])), **DOTTED)
    legend(picture, rows, baseline=DOTTED)
    return picture


def differences(groups: Sequence[Group]) -> Picture:
    """G3: how far each step moves the state of the trained networks, in the paper's scaling and relative, a row a mode."""
    picture, rows = grid(len(groups), 2)
    for group, axes in zip(groups, rows, strict=True):
        for axis, key in zip(axes, ("scaled", "relative"), strict=True):
            lines(axis, group, group.gradients(), lambda trial, key=key: trial.result["difference"][key], by_epoch=False, first=1)
        title = TITLES[group.mode]
        axes[0].set(title=f"{title}: as the paper plots it", xlabel="step t", ylabel="‖hₜ − hₜ₋₁‖ / elements", ylim=(0, None))
        axes[1].set(title=f"{title}: relative", xlabel="step t", ylabel="‖hₜ − hₜ₋₁‖ / ‖hₜ‖", yscale="log")
        axes[1].axhline(0.01, **DOTTED)
    legend(picture, rows, **{"1 %": DOTTED})
    return picture


def adjoint(groups: Sequence[Group]) -> Picture:
    """The relative difference of the last step, and the residual of the adjoint equation, through training, a row a mode."""
    picture, rows = grid(len(groups), 2)
    for group, axes in zip(groups, rows, strict=True):
        lines(axes[0], group, group.gradients(), lambda trial: trial.seen("difference_relative"))
        solving = [method for method in group.gradients() if method in ADJOINT]
        lines(axes[1], group, solving, lambda trial: trial.seen("adjoint_residual"))
        title = TITLES[group.mode]
        axes[0].set(title=f"{title}: last step", xlabel="epoch", yscale="log", ylim=(1e-5, 2))
        axes[0].set_ylabel(r"$\|h_T - h_{T-1}\|\,/\,\|h_T\|$")
        axes[1].set(title=f"{title}: adjoint residual", xlabel="epoch", ylabel="‖b − (I − Jᵀ)z‖ / ‖b‖", yscale="log")
        axes[1].axhline(1, **DOTTED)
    legend(picture, rows, **{"as large as b": DOTTED})
    return picture


def lines(axis: Axes, group: Group, methods: Sequence[str], series: Series, by_epoch: bool = True, first: int = 0) -> None:
    """A line a method: over the validated epochs, or over first, first + 1, … What was not measured leaves a gap."""
    for method in methods:
        trials = group.of(method)
        values = stacked([series(trial) for trial in trials])
        some = np.isfinite(values).any(axis=0)
        if not some.any():
            continue
        epochs: Sequence[int] = max((trial.seen("epoch") for trial in trials), key=len)
        x = np.asarray(epochs if by_epoch else range(first, first + values.shape[1]))[some]
        values = values[:, some]
        mean = np.nanmean(values, axis=0)
        spread = np.nanstd(values, axis=0)
        low = np.maximum(mean - spread, np.nanmin(values, axis=0))  # so that a logarithm can show it
        band = (low.tolist(), (mean + spread).tolist()) if len(trials) > 1 else None
        curve(axis, method, x.tolist(), mean.tolist(), band)
        if band is not None:
            axis.collections[-1].set_alpha(0.07)  # eight of them may lie on each other
