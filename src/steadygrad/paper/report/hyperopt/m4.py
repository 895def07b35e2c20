"""M4: the paths of the weights at meta steps 20 and 40: in time TBPTT oscillates and Neumann-RBP converges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hyperopt.m1 import TENTH
from steadygrad.paper.report.hyperopt.trials import PAPER_K, Cell, Mode
from steadygrad.paper.report.panels import Array, Panel, Points, draw
from steadygrad.paper.report.style import look
from steadygrad.paper.report.trial import Trial, median
from steadygrad.paper.report.verdicts import Finding, Length, Outcome

METHODS = ("tbptt", "neumann-rbp")
PAPER_META_STEPS = (20, 40)
MORE = 2.0
"""The contrast: TBPTT's pace at the end is at least this many times Neumann-RBP's."""
STILL = 0.05
"""A path whose pace at the end is below this share of its mean rests: two such have no contrast."""
PERPLEXITY = 30
FEWEST = 4
"""Points that t-SNE needs."""
DOTS: dict[str, Any] = {"cmap": "viridis", "s": 24, "edgecolors": "white", "linewidths": 0.3, "zorder": 3}


@dataclass(frozen=True)
class Path:
    """States of the weights at some steps of a training."""

    steps: list[int]
    states: Array

    @property
    def pace(self) -> float | None:
        """Speed along the path in the last tenth of the steps, relative to that along all of it: 1 moves on as ever, 0 rests.

        None for a path without length.
        """
        path = np.linalg.norm(np.diff(self.states, axis=0), axis=1)
        gaps = np.diff(np.asarray(self.steps, dtype=float))
        if len(path) == 0 or path.sum() == 0 or gaps.sum() <= 0:
            return None
        first, last = self.steps[0], self.steps[-1]
        late = np.asarray(self.steps[1:]) > last - TENTH * (last - first)
        return float((path[late].sum() / gaps[late].sum()) / (path.sum() / gaps.sum()))

    @property
    def away(self) -> Points:
        """The distance from the end, relative to that of the start; none where that is zero."""
        far = np.linalg.norm(self.states - self.states[-1], axis=1)
        return self.steps, [float(distance / far[0]) if far[0] and distance else None for distance in far]


def paths(trial: Trial) -> dict[int, Path]:
    """By meta step."""
    found = {int(step): path for step, path in (trial.result.get("trajectory") or {}).items() if len(path["state"]) > 1}
    return {step: Path(path["step"], np.asarray(path["state"], dtype=float)) for step, path in found.items()}


def meta_steps(cell: Cell) -> list[int]:
    """The paper's two, or the last two that both methods have."""
    both = set.intersection(*({step for trial in cell.of(method) for step in paths(trial)} for method in METHODS))
    return [step for step in PAPER_META_STEPS if step in both] or sorted(both)[-2:]


def snapshots(mode: Mode) -> list[tuple[Cell, int]]:
    """The settings and meta steps at which both methods have paths."""
    return [(cell, step) for cell in mode.cells for step in meta_steps(cell)]


def of_step(cell: Cell, method: str, step: int) -> list[Path]:
    return [found[step] for trial in cell.of(method) if step in (found := paths(trial))]


def pace_of(cell: Cell, method: str, step: int) -> float | None:
    return median(path.pace for path in of_step(cell, method, step))


def paces(mode: Mode) -> list[tuple[float, float]]:
    """TBPTT's and Neumann-RBP's pace at the end, at the paper's meta steps, medians over seeds."""
    places = [(cell, step) for cell, step in snapshots(mode) if step in PAPER_META_STEPS]
    pairs = [(pace_of(cell, METHODS[0], step), pace_of(cell, METHODS[1], step)) for cell, step in places]
    return [(theirs, ours) for theirs, ours in pairs if theirs is not None and ours is not None]


def contrasts(pair: tuple[float, float]) -> bool:
    theirs, ours = pair
    return theirs >= max(STILL, MORE * ours)


def rests(mode: Mode) -> Finding:
    """At every snapshot: does TBPTT's training move on where Neumann-RBP's rests? The paper's length ends with the second."""
    found = paces(mode)
    if not found:
        return Finding()
    seeds = [cell.seeds for cell, _ in snapshots(mode)]
    length = Length(max(step for _, step in snapshots(mode)), max(PAPER_META_STEPS), "meta steps")
    return Finding(Outcome.of(all(map(contrasts, found))), found, (min(seeds), max(seeds)), length)


def shown(mode: Mode) -> Cell:
    """The setting with the largest T and the K nearest to 50."""
    return max((cell for cell, _ in snapshots(mode)), key=lambda cell: (cell.T, -abs((cell.K or 0) - PAPER_K)))


def walks(cell: Cell) -> Picture:
    """Above: t-SNE of a trial a method, of the lowest seed; below: the distance from the end, which no embedding can distort."""

    def away(trial: Trial, step: int) -> Points | None:
        path = paths(trial).get(step)
        return path and path.away

    def embedded(step: int) -> Embedded:
        return Embedded({m: of_step(cell, m, step)[0].states for m in METHODS}, f"Meta step {step}: t-SNE")

    curves = {step: cell.curves(lambda trial, step=step: away(trial, step), METHODS) for step in meta_steps(cell)}
    about: dict[str, Any] = {"x": "training step", "y": "relative to the start's", "log": True}
    below = [Panel(of, "Distance from the end", **about) for of in curves.values()]
    return draw([[embedded(step) for step in curves], below], height=2.6)


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
