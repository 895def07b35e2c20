"""Paths of weights in two dimensions by t-SNE, as the paper shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from steadygrad.paper.report.panels import Array
from steadygrad.paper.report.style import look

PERPLEXITY = 30
FEWEST = 4
"""Points that t-SNE needs."""
DOTS: dict[str, Any] = {"cmap": "viridis", "s": 24, "edgecolors": "white", "linewidths": 0.3, "zorder": 3}


@dataclass(frozen=True)
class Embedded:
    """The paths of several methods in one embedding: the method by marker and line, the time by colour, the ends named."""

    paths: Mapping[str, Array]
    title: str

    def draw(self, axis: Axes) -> None:
        places = np.cumsum([len(path) for path in self.paths.values()])
        parts = np.split(embedding(np.concatenate(list(self.paths.values()))), places[:-1])
        for method, part in zip(self.paths, parts, strict=True):
            (x, y), seen = part.T, look(method)
            axis.plot(x, y, color=seen.colour, linestyle=seen.line, linewidth=0.8, alpha=0.8, zorder=2)
            axis.scatter(x, y, c=np.arange(len(x)), marker=seen.marker, **DOTS)
            axis.plot(x[-1:], y[-1:], marker=seen.marker, markersize=9, color="none", markeredgecolor="black", zorder=4)
        axis.set(title=self.title, xlabel="t-SNE 1", ylabel="t-SNE 2", xticks=[], yticks=[])
        name_ends(axis, [look(method).label for method in self.paths], [part[-1] for part in parts])


def name_ends(axis: Axes, names: Sequence[str], ends: Sequence[Array]) -> None:
    """The names above all points, left and right as the ends are, each with a line to its end."""
    axis.margins(0.08)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.18 * (high - low))
    arrow = {"arrowstyle": "-", "color": "#444444", "linewidth": 0.7, "shrinkB": 5}
    for place, (end, name) in enumerate(sorted(zip(ends, names, strict=True), key=lambda pair: float(pair[0][0]))):
        about: dict[str, Any] = {"ha": "right" if place else "left", "va": "top", "fontsize": 8, "arrowprops": arrow}
        axis.annotate(f"end, {name}", (end[0], end[1]), xytext=(0.02 + 0.96 * place, 0.98), textcoords="axes fraction", **about)


def embedding(states: Array) -> Array:
    """t-SNE, exact and with a fixed seed; few points take a smaller perplexity, too few are shown in two of their dimensions."""
    from sklearn.manifold import TSNE  # pyright: ignore[reportMissingTypeStubs]  # slow to import, for this figure only

    if len(states) < FEWEST or not np.ptp(states, axis=0).any():
        return states[:, :2]
    perplexity = min(PERPLEXITY, (len(states) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=0, method="exact").fit_transform(states)
