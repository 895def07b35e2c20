"""Panels of curves: how they are laid out, what their data are made of, and one legend for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D

from steadygrad.report.style import METHODS, WIDTH

Array = np.ndarray[Any, np.dtype[np.float64]]
DOTTED: dict[str, Any] = {"color": "#5A5A5A", "linewidth": 0.9, "linestyle": (0, (1, 1))}
DASHED: dict[str, Any] = {**DOTTED, "linestyle": (0, (6, 2, 1, 2))}


FEW = 16
"""A line of fewer points shows its marker where no other method shows one."""


def grid(rows: int, columns: int, height: float = 2.3) -> tuple[Picture, list[list[Axes]]]:
    picture = Picture(figsize=(WIDTH, 0.7 + height * rows))
    return picture, [list(row) for row in picture.subplots(rows, columns, squeeze=False)]


def stacked(rows: Sequence[Sequence[float | None]]) -> Array:
    """The rows as one array; NaN where something is missing, not finite, or zero, which no logarithm can show."""
    out = np.full((len(rows), max(map(len, rows))), np.nan)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = [value if value and math.isfinite(value) else np.nan for value in values]
    return out


def same_height(axes: Sequence[Axes]) -> None:
    low, high = zip(*(axis.get_ylim() for axis in axes), strict=True)
    for axis in axes:
        axis.set_ylim(min(low), max(high))


def legend(picture: Picture, rows: Sequence[Sequence[Axes]], **marks: dict[str, Any]) -> None:
    """One legend below all panels: the methods in their order, other labels, then the marks (name = how its line is drawn)."""
    handles: dict[str, Any] = {}
    for axis in (axis for axes in rows for axis in axes):
        handles.update(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    known = [shown.label for shown in METHODS.values()]
    labels = sorted(handles, key=lambda label: (known.index(label) if label in known else len(known), label))
    shown = [handles[label] for label in labels] + [Line2D([], [], label=name, **mark) for name, mark in marks.items()]
    picture.legend(handles=shown, loc="outside lower center", ncols=4 if len(shown) > 5 else len(shown))
