"""Panels of curves: what one shows, how they are laid out, the line of a method over seeds, and one legend for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from steadygrad.paper.report.style import METHODS, WIDTH, curve

Array = np.ndarray[Any, np.dtype[np.float64]]
Points = tuple[Sequence[float], Sequence[float | None]]
Curves = Mapping[str, Sequence[Points]]
"""Of each method a curve a seed."""
DOTTED: dict[str, Any] = {"color": "#5A5A5A", "linewidth": 0.9, "linestyle": (0, (1, 1))}
Marks = Mapping[str, dict[str, Any]]
"""Lines that are no method's, by name, for the legend."""
NO_MARKS: Marks = {}
FEW = 16
"""A line of fewer points shows its marker where no other method shows one."""


@dataclass(frozen=True)
class Panel:
    """The lines of several methods over the same places, each the middle of its seeds."""

    curves: Curves
    title: str = ""
    x: str = ""
    y: str = ""
    log: bool = False
    level: float | None = None
    """the height of a dotted line"""
    at: float | None = None
    """the place of a dotted line"""
    height: tuple[float | None, float | None] = (None, None)

    def draw(self, axis: Axes) -> None:
        axis.set(title=self.title, xlabel=self.x, ylabel=self.y, yscale="log" if self.log else "linear")
        kept = {method: found for method, found in self.curves.items() if found}
        for place, (method, found) in enumerate(kept.items()):
            line(axis, method, found, place, len(kept))
        for place, mark in ((self.level, axis.axhline), (self.at, axis.axvline)) if kept else ():
            if place is not None:
                mark(place, **DOTTED)
        axis.set_ylim(*self.height)
        if self.log:
            logarithmic(axis)


def numbered(values: Sequence[float | None], first: int = 1) -> Points:
    """A curve over the number of its points."""
    return range(first, first + len(values)), values


class Content(Protocol):
    """What fills a place in a picture."""

    def draw(self, axis: Axes) -> None: ...


def draw(rows: Sequence[Sequence[Content | None]], marks: Marks = NO_MARKS, height: float = 2.3) -> Picture:
    """The panels as a picture with one legend; None leaves a place free. What a panel to the left or below says is left out."""
    picture = Picture(figsize=(WIDTH, 0.7 + height * len(rows)))
    places = [list(row) for row in picture.subplots(len(rows), len(rows[0]), squeeze=False)]
    for panels, axes in zip(rows, places, strict=True):
        for panel, axis in zip(panels, axes, strict=True):
            if panel is None:
                axis.set_axis_off()
            else:
                panel.draw(axis)
        for left, axis in reversed(list(pairwise(axes))):
            axis.set_ylabel("" if axis.get_ylabel() == left.get_ylabel() else axis.get_ylabel())
    for above, below in ((a, b) for upper, lower in pairwise(places) for a, b in zip(upper, lower, strict=True)):
        above.set_xlabel("" if above.get_xlabel() == below.get_xlabel() else above.get_xlabel())
    legend(picture, places, marks)
    return picture


def line(axis: Axes, method: str, found: Sequence[Points], place: int, count: int) -> None:
    """The median of these curves, on the places of the longest, with a band from the lowest to the highest; what was not measured
    leaves a gap."""
    values = stacked([y for _, y in found], positive=axis.get_yscale() == "log")
    some = np.isfinite(values).any(axis=0)
    if not some.any():
        return
    x = np.asarray(max((x for x, _ in found), key=len), dtype=float)[some]
    low, centre, high = (f(values[:, some], axis=0).tolist() for f in (np.nanmin, np.nanmedian, np.nanmax))
    curve(axis, method, x.tolist(), centre, (low, high) if len(found) > 1 else None)
    if len(x) < FEW:
        axis.lines[-1].set_markevery((place % len(x), count) if len(x) > count else 1)


def stacked(rows: Sequence[Sequence[float | None]], positive: bool) -> Array:
    """The rows as one array; NaN where something is missing, not finite, or zero where a logarithm is to show it."""
    out = np.full((len(rows), max(map(len, rows))), np.nan)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = [v if v is not None and math.isfinite(v) and (v or not positive) else np.nan for v in values]
    return out


def logarithmic(axis: Axes) -> None:
    """Numbers as people write them, 0.02, and enough of them where the height spans little."""
    low, high = axis.get_ylim()
    decades = np.log10(high / low)
    subs = (1, 1.5, 2, 3, 4, 6, 8) if decades < 0.8 else (1, 2, 5) if decades < 1.5 else (1, 3) if decades < 3 else (1,)
    axis.yaxis.set_major_locator(LogLocator(subs=subs, numticks=9))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def legend(picture: Picture, rows: Sequence[Sequence[Axes]], marks: Marks = NO_MARKS) -> None:
    """One legend below all panels: the methods in their order, other labels, then the marks."""
    handles: dict[str, Any] = {}
    for axis in (axis for axes in rows for axis in axes):
        handles.update(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    known = [shown.label for shown in METHODS.values()]
    labels = sorted(handles, key=lambda label: (known.index(label) if label in known else len(known), label))
    shown = [handles[label] for label in labels] + [Line2D([], [], label=name, **mark) for name, mark in marks.items()]
    picture.legend(handles=shown, loc="outside lower center", ncols=min(4, len(shown)))
