"""The line of a method over seeds, and panels in a table of T and K."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from steadygrad.report.hyperopt.trials import Trial
from steadygrad.report.panels import FEW, stacked
from steadygrad.report.style import curve

Points = tuple[Sequence[float], Sequence[float | None]]
Series = Callable[[Trial], Points | None]
ZERO = "as far off as zero"
"""A relative error of 1."""
FLOOR = 1e-3
"""Errors below are drawn here: they are as good as none, and would press the others together."""
TINY = 1e-300
"""Stands for zero, which `stacked` takes for something that was not measured, on an axis that can show it."""


def lines(axis: Axes, trials: dict[str, list[Trial]], series: Series) -> None:
    """A line a method: the median over its trials, with a band from the lowest to the highest."""
    drawn = {method: [points for trial in found if (points := series(trial)) is not None] for method, found in trials.items()}
    for place, (method, found) in enumerate(drawn.items()):
        if found:
            line(axis, method, found, place, len(drawn))


def line(axis: Axes, method: str, found: Sequence[Points], place: int, count: int) -> None:
    """The median of these curves, on the places of the longest; what was not measured leaves a gap."""
    values = stacked([y for _, y in found])
    some = np.isfinite(values).any(axis=0)
    if not some.any():
        return
    x = np.asarray(max((x for x, _ in found), key=len), dtype=float)[some]
    low, middle, high = (f(values[:, some], axis=0) for f in (np.nanmin, np.nanmedian, np.nanmax))
    curve(axis, method, x.tolist(), middle.tolist(), (low.tolist(), high.tolist()) if len(found) > 1 else None)
    if len(found) > 1:
        axis.collections[-1].set_alpha(0.09)
    if len(x) < FEW:
        axis.lines[-1].set_markevery((place % len(x), count) if len(x) > count else 1)


def zeros_shown(values: Sequence[float | None]) -> list[float | None]:
    return [TINY if value == 0 else value for value in values]


def floored(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else max(value, FLOOR) for value in values]


def plain(value: float, _: int) -> str:
    return f"{value:g}"


def logarithmic(axis: Axes) -> None:
    """A logarithmic height with numbers as people write them, 0.02, and enough of them where it spans little."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    decades = np.log10(high / low)
    subs = (1, 1.5, 2, 3, 4, 6, 8) if decades < 0.8 else (1, 2, 5) if decades < 1.5 else (1, 3) if decades < 3 else (1,)
    axis.yaxis.set_major_locator(LogLocator(subs=subs, numticks=9))
    axis.yaxis.set_major_formatter(FuncFormatter(plain))
    axis.yaxis.set_minor_formatter(NullFormatter())


def marked(axis: Axes, places: Sequence[int]) -> None:
    """A logarithmic width with a mark at each place that was tried, and at no other."""
    axis.set_xscale("log")
    axis.set_xticks(places, [str(place) for place in places])
    axis.set_xticks([], minor=True)
