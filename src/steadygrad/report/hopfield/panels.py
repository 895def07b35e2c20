"""The curves of a mode: a line a method, the median over seeds, with a band from the lowest to the highest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes

from steadygrad.report.hopfield.trials import Mode, Trial
from steadygrad.report.panels import FEW, stacked
from steadygrad.report.style import curve

Series = Callable[[Trial], Sequence[float | None]]
PASSES = "pass over the ten images"


def lines(axis: Axes, mode: Mode, methods: Sequence[str], series: Series, first: int | None = None) -> None:
    """A line a method: over the validated passes, or over 1, 2, 3 from `first` on. What was not measured leaves a gap."""
    for place, method in enumerate(methods):
        trials = mode.of(method)
        values = stacked([series(trial) for trial in trials])
        some = np.isfinite(values).any(axis=0)
        if not some.any():
            continue
        passes = max((trial.seen("pass") for trial in trials), key=len)
        x = np.asarray(passes if first is None else range(first, first + values.shape[1]))[some]
        values = values[:, some]
        band = (np.nanmin(values, axis=0).tolist(), np.nanmax(values, axis=0).tolist()) if len(trials) > 1 else None
        curve(axis, method, x.tolist(), np.nanmedian(values, axis=0).tolist(), band)
        if band is not None:
            axis.collections[-1].set_alpha(0.07)  # seven of them may lie on each other
        if len(x) < FEW:
            axis.lines[-1].set_markevery((place % len(x), len(methods)))
