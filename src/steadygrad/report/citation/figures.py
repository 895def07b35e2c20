"""The curves of the citation section: a line a method, the mean over seeds, with a band of a standard deviation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.report.citation.claims import STEADY
from steadygrad.report.citation.trials import TITLES, Group, Trial
from steadygrad.report.panels import DOTTED, Array, grid, legend, stacked
from steadygrad.report.style import curve

Series = Callable[[Trial], Sequence[float | None]]
ADJOINT = ("rbp", "cg-rbp", "neumann-rbp", "auto")
"""The methods that solve the adjoint equation, hence have a residual of it."""


def learning(groups: Sequence[Group]) -> Picture:
    """G3: training loss and validation accuracy over epochs, a row a mode."""
    picture, rows = grid(len(groups), 2)
    for group, axes in zip(groups, rows, strict=True):
        title = TITLES[group.mode]
        axes[0].set(title=f"{title}: training loss", xlabel="epoch", ylabel="cross-entropy", yscale="log")
        axes[1].set(title=f"{title}: validation", xlabel="epoch", ylabel="accuracy, %")
        lines(axes[0], group, group.gradients(), lambda trial: trial.result["training_loss"], by_epoch=False)
        lines(axes[1], group, group.gradients(), lambda trial: [100 * value for value in trial.seen("accuracy")])
        if alone := group.of("baseline"):
            axes[1].axhline(float(np.mean([trial.validation for trial in alone])), **DOTTED)
    legend(picture, rows, baseline=DOTTED)
    return picture


def differences(groups: Sequence[Group]) -> Picture:
    """G3: how far each step moves the state of the trained networks, in the paper's scaling and relative, a row a mode."""
    picture, rows = grid(len(groups), 2)
    for group, axes in zip(groups, rows, strict=True):
        title = TITLES[group.mode]
        axes[0].set(title=f"{title}: as the paper plots it", xlabel="step t", ylabel="‖hₜ − hₜ₋₁‖ / elements")
        axes[1].set(title=f"{title}: relative", xlabel="step t", ylabel="‖hₜ − hₜ₋₁‖ / ‖hₜ‖", yscale="log")
        for axis, key in zip(axes, ("scaled", "relative"), strict=True):
            lines(axis, group, group.gradients(), lambda trial, key=key: trial.result["difference"][key], by_epoch=False, first=1)
        axes[0].set_ylim(0, 1.05 * ceiling(group) if clipped(group) else None)
        axes[1].axhline(STEADY, **DOTTED)
    legend(picture, rows, **{"1 %": DOTTED})
    return picture


def heights(group: Group) -> list[float]:
    """The highest of each method's curve in the paper's scaling."""
    means = (stacked([trial.result["difference"]["scaled"] for trial in group.of(method)]) for method in group.gradients())
    some = [values[:, np.isfinite(values).any(axis=0)] for values in means]  # an epoch that nobody measured has no mean
    return [float(np.nanmax(np.nanmean(values, axis=0))) for values in some if values.size]


def ceiling(group: Group) -> float:
    """Three times the middle height: what is above hides all the others."""
    return 3 * float(np.median(heights(group) or [np.inf]))


def clipped(group: Group) -> bool:
    return any(height > 2 * ceiling(group) for height in heights(group))


def adjoint(groups: Sequence[Group]) -> Picture:
    """The relative difference of the last step, and the residual of the adjoint equation, through training, a row a mode."""
    picture, rows = grid(len(groups), 2)
    for group, axes in zip(groups, rows, strict=True):
        title = TITLES[group.mode]
        axes[0].set(title=f"{title}: last step", xlabel="epoch", yscale="log", ylim=(1e-5, 2))
        axes[0].set_ylabel(r"$\|h_T - h_{T-1}\|\,/\,\|h_T\|$")
        axes[1].set(title=f"{title}: adjoint residual", xlabel="epoch", ylabel="‖b − (I − Jᵀ)z‖ / ‖b‖", yscale="log")
        lines(axes[0], group, group.gradients(), lambda trial: trial.seen("difference_relative"))
        solving = [method for method in group.gradients() if method in ADJOINT]
        lines(axes[1], group, solving, lambda trial: trial.seen("adjoint_residual"))
        axes[1].axhline(1, **DOTTED)
    legend(picture, rows, **{"as large as b": DOTTED})
    return picture


def lines(axis: Axes, group: Group, methods: Sequence[str], series: Series, by_epoch: bool = True, first: int = 0) -> None:
    """A line a method: over the validated epochs, or over first, first + 1, … What was not measured leaves a gap.

    Mean and standard deviation over seeds; of the logarithms where the axis has them, so that one seed that blew up does not
    hide the rest.
    """
    for method in methods:
        trials = group.of(method)
        values = stacked([series(trial) for trial in trials])
        some = np.isfinite(values).any(axis=0)
        if not some.any():
            continue
        epochs: Sequence[int] = max((trial.seen("epoch") for trial in trials), key=len)
        x = np.asarray(epochs if by_epoch else range(first, first + values.shape[1]))[some]
        values = values[:, some]
        logarithmic = axis.get_yscale() == "log"
        mean, low, high = middle_and_band(np.log(values) if logarithmic else values)
        if logarithmic:
            mean, low, high = np.exp(mean), np.exp(low), np.exp(high)
        band = (low.tolist(), high.tolist()) if len(trials) > 1 else None
        curve(axis, method, x.tolist(), mean.tolist(), band)
        if band is not None:
            axis.collections[-1].set_alpha(0.07)  # eight of them may lie on each other


def middle_and_band(values: Array) -> tuple[Array, Array, Array]:
    """Mean over the rows, and a standard deviation below and above it."""
    mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    return mean, mean - spread, mean + spread
