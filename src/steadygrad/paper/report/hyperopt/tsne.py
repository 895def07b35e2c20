"""Paths of weights in two dimensions, by t-SNE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from steadygrad.paper.report.panels import Array
from steadygrad.paper.report.style import look

PERPLEXITY = 30
DOTS: dict[str, Any] = {"cmap": "viridis", "s": 24, "edgecolors": "white", "linewidths": 0.3, "zorder": 3}
FEWEST = 4
"""Points that t-SNE needs."""


@dataclass(frozen=True)
class Path:
    steps: list[int]
    states: Array

    @property
    def away(self) -> list[float]:
        """The distance from the end, relative to that of the start; NaN where it is none."""
        far = np.linalg.norm(self.states - self.states[-1], axis=1)
        return np.where(far > 0, far / (far[0] or np.nan), np.nan).tolist()


def embedded(axis: Axes, paths: dict[str, Path]) -> Any:
    """Both paths in one embedding; the method by marker and line, the time by colour, the ends named."""
    points = embedding(np.concatenate([path.states for path in paths.values()]))
    latest = max(path.steps[-1] for path in paths.values())
    parts = np.split(points, np.cumsum([len(path.steps) for path in paths.values()])[:-1])
    dots = None
    for (method, path), part in zip(paths.items(), parts, strict=True):
        (x, y), seen = part.T, look(method)
        axis.plot(x, y, color=seen.colour, linestyle=seen.line, linewidth=0.8, alpha=0.8, zorder=2)
        dots = axis.scatter(x, y, c=path.steps, vmin=0, vmax=latest, marker=seen.marker, **DOTS)
        axis.plot(x[-1:], y[-1:], marker=seen.marker, markersize=9, color="none", markeredgecolor="black", zorder=4)
    name_ends(axis, {look(method).label: part[-1] for method, part in zip(paths, parts, strict=True)})
    return dots


def name_ends(axis: Axes, ends: dict[str, Array]) -> None:
    """The names above all points, left and right as the ends are, each with a line to its end."""
    axis.margins(0.08)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.18 * (high - low))
    arrow = {"arrowstyle": "-", "color": "#444444", "linewidth": 0.7, "shrinkB": 5}
    for place, (name, (x, y)) in enumerate(sorted(ends.items(), key=lambda item: float(item[1][0]))):
        look: dict[str, Any] = {"ha": "right" if place else "left", "va": "top", "fontsize": 8, "arrowprops": arrow}
        axis.annotate(f"end, {name}", (x, y), xytext=(0.02 + 0.96 * place, 0.98), textcoords="axes fraction", **look)


def embedding(states: Array) -> Array:
    """t-SNE, exact and with a fixed seed; few points take a smaller perplexity, too few are shown in two of their dimensions."""
    from sklearn.manifold import TSNE  # pyright: ignore[reportMissingTypeStubs]  # slow to import, for this figure only

    if len(states) < FEWEST or not np.ptp(states, axis=0).any():
        return states[:, :2]
    perplexity = min(PERPLEXITY, (len(states) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=0, method="exact").fit_transform(states)
