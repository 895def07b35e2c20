"""M4: the paths of the weights at meta steps 20 and 40: in time TBPTT oscillates and Neumann-RBP converges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hyperopt.m1 import TENTH
from steadygrad.paper.report.hyperopt.trials import PAPER_K, Cell, HyperoptTrial, Mode, Sorted, seeds
from steadygrad.paper.report.panels import Array, grid, legend, logarithmic
from steadygrad.paper.report.section import Figure, Finding, Part, Table, judged
from steadygrad.paper.report.style import curve, look
from steadygrad.paper.report.text import number, short, span
from steadygrad.paper.report.trial import MODES, median
from steadygrad.paper.report.verdicts import Length, Outcome

METHODS = ("tbptt", "neumann-rbp")
PAPER_META_STEPS = (20, 40)
MORE = 2.0
"""The contrast: TBPTT's pace at the end is at least this many times Neumann-RBP's."""
STILL = 0.05
"""A path whose pace at the end is below this share of its mean rests: two such have no contrast."""
PERPLEXITY = 30
DOTS: dict[str, Any] = {"cmap": "viridis", "s": 24, "edgecolors": "white", "linewidths": 0.3, "zorder": 3}
FEWEST = 4
"""Points that t-SNE needs."""


@dataclass(frozen=True)
class Path:
    steps: list[int]
    states: Array

    @property
    def away(self) -> list[float | None]:
        """The distance from the end, relative to that of the start."""
        far = np.linalg.norm(self.states - self.states[-1], axis=1)
        return [float(value) / float(far[0]) if value > 0 and far[0] > 0 else None for value in far]


def pace(steps: Sequence[int], states: Array) -> float | None:
    """Speed along the path in the last tenth of the steps, relative to that along all of it: 1 moves on as ever, 0 rests.

    None for a path without length.
    """
    path = np.linalg.norm(np.diff(states, axis=0), axis=1)
    gaps = np.diff(np.asarray(steps, dtype=float))
    if len(path) == 0 or path.sum() == 0 or gaps.sum() <= 0:
        return None
    late = np.asarray(steps[1:]) > steps[-1] - TENTH * (steps[-1] - steps[0])
    return float((path[late].sum() / gaps[late].sum()) / (path.sum() / gaps.sum()))


def straightness(states: Array) -> float | None:
    """Over the last half of the path: how far it gets, relative to how long it is. 1 goes straight on, 0 comes back."""
    half = states[len(states) // 2 :]
    length = float(np.linalg.norm(np.diff(half, axis=0), axis=1).sum())
    return float(np.linalg.norm(half[-1] - half[0])) / length if length else None


def path(trial: HyperoptTrial, meta_step: int) -> Path | None:
    found = (trial.result.get("trajectory") or {}).get(str(meta_step))
    return Path(found["step"], np.asarray(found["state"], dtype=float)) if found and len(found["state"]) > 1 else None


def meta_steps(cell: Cell) -> list[int]:
    """The paper's two, or the last two that both methods have."""
    kept = [
        {int(step) for trial in cell.of(method) for step in trial.result.get("trajectory") or {} if path(trial, int(step))}
        for method in METHODS
    ]
    both = set.intersection(*kept)
    return [step for step in PAPER_META_STEPS if step in both] or sorted(both)[-2:]


def walked(mode: Mode) -> list[Cell]:
    """The settings in which both methods have paths."""
    return [cell for cell in mode.cells if meta_steps(cell)]


def measured(cell: Cell, method: str, meta_step: int) -> tuple[float | None, float | None]:
    """Pace at the end and straightness, medians over seeds."""
    paths = [found for trial in cell.of(method) if (found := path(trial, meta_step)) is not None]
    return median(pace(p.steps, p.states) for p in paths), median(straightness(p.states) for p in paths)


def paces(mode: Mode) -> list[tuple[float, float]]:
    """TBPTT's and Neumann-RBP's pace at the end, at the paper's meta steps."""
    return [
        (theirs, ours)
        for cell in walked(mode)
        for step in meta_steps(cell)
        for theirs, ours in [[measured(cell, method, step)[0] for method in METHODS]]
        if step in PAPER_META_STEPS and theirs is not None and ours is not None
    ]


def contrast(mode: Mode) -> Outcome:
    seen = paces(mode)
    return Outcome.of(all(theirs >= max(STILL, MORE * ours) for theirs, ours in seen)) if seen else Outcome.MISSING


def words(mode: Mode) -> str:
    theirs, ours = zip(*paces(mode), strict=True)
    holds = sum(t >= max(STILL, MORE * o) for t, o in paces(mode))
    return f"pace at the end: TBPTT {span(theirs)}, Neumann-RBP {span(ours)}; {holds} of {len(ours)} snapshots"


def parts(found: Sorted) -> list[Part]:
    published, fixed = (m if m is not None and paces(m) else None for m in map(found.of, MODES))
    ours = corrected = None
    if published is not None:
        last = max(step for cell in walked(published) for step in meta_steps(cell))
        length = Length(last, max(PAPER_META_STEPS), "meta steps")
        ours = Finding(contrast(published), words(published), seeds(walked(published)), length)
    if fixed is not None:
        rest = max(max(pair) for pair in paces(fixed)) < STILL
        corrected = Finding(contrast(fixed), "both come to rest" if rest else words(fixed), seeds(walked(fixed)))
    text = "At meta steps 20 and 40 TBPTT's training keeps moving where Neumann-RBP's comes to rest"
    why = f"Pace: speed in the last tenth over the mean speed; limit: {number(MORE)} times."
    return [judged("M4", text, "t-SNE pictures", ours, corrected, why)]


def table(found: Sorted) -> Table:
    """The numbers behind the pictures."""
    rows: list[tuple[str, ...]] = []
    for mode in found.tuned:
        for cell in walked(mode):
            for step in meta_steps(cell):
                for method in METHODS:
                    moved = median(last_step(trial, step) for trial in cell.of(method))
                    numbers = [short(value) for value in (*measured(cell, method, step), moved)]
                    seeds = str(len([trial for trial in cell.of(method) if path(trial, step)]))
                    rows.append((mode.title, str(cell.T), str(cell.K), str(step), look(method).label, *numbers, seeds))
    return Table(
        "hyperopt-m4-numbers",
        "M4: does the training come to rest?",
        ("mode", "T", "K", "meta step", "method", "pace at the end", "straightness", "last step", "seeds"),
        tuple(rows),
        "Pace at the end: speed along the path in the last tenth of the training, relative to the mean speed. Straightness: over "
        "the last half of the path, how far it gets divided by how long it is; 0 where it turns back all the time. Both from 50 "
        "states of the training under one random projection to 32 dimensions. Last step: "
        "‖F(h) − h‖ / ‖F(h)‖ as the implicit methods measure it. Medians over the seeds.",
    )


def last_step(trial: HyperoptTrial, meta_step: int) -> float | None:
    moved = trial.result.get("movement") or []
    return moved[meta_step - 1] if meta_step <= len(moved) else None


def shown(mode: Mode) -> tuple[Cell, dict[str, HyperoptTrial]]:
    """The setting with the largest T and the K nearest to 50, and a trial a method, of the lowest seed that both have."""
    cell = max(walked(mode), key=lambda cell: (len(meta_steps(cell)), cell.T, -abs((cell.K or 0) - PAPER_K)))
    trials = {m: [t for t in cell.of(m) if all(path(t, step) for step in meta_steps(cell))] for m in METHODS}
    common = set.intersection(*({trial.seed for trial in found} for found in trials.values()))
    return cell, {m: next((t for t in found if t.seed in common), found[0]) for m, found in trials.items() if found}


def figures(found: Sorted) -> list[Figure]:
    return [figure(mode) for mode in found.tuned if walked(mode)]


def figure(mode: Mode) -> Figure:
    cell, trials = shown(mode)
    steps = " and ".join(map(str, meta_steps(cell)))
    seed = ", ".join(str(seed) for seed in sorted({trial.seed for trial in trials.values()}))
    return Figure(
        f"hyperopt-m4-{mode.name}",
        f"M4, {mode.title.lower()}: the weights along the training of meta steps {steps} ({cell.title}, seed {seed}). Above: "
        "t-SNE of both methods together; squares and dashes TBPTT, crosses Neumann-RBP, time as colour; it keeps neighbours, not "
        "distances. Below: the distance from the last state, relative to that of the first.",
        "Two paths a meta step; their numbers are in the table below.",
        partial(draw, mode),
        len(trials),
    )


def draw(mode: Mode) -> Picture:
    """Above: t-SNE of both paths, time as colour; below: the distance from the end, which no embedding can distort."""
    cell, trials = shown(mode)
    steps = meta_steps(cell)
    picture, rows = grid(2, len(steps), 2.6)
    for step, upper, lower in zip(steps, *rows, strict=True):
        paths = {method: found for method, trial in trials.items() if (found := path(trial, step)) is not None}
        dots = embedded(upper, paths)
        upper.set(title=f"Meta step {step}: t-SNE", xlabel="t-SNE 1", ylabel="t-SNE 2", xticks=[], yticks=[])
        for method, found in paths.items():
            away = [np.nan if value is None else value for value in found.away]
            curve(lower, method, found.steps, away)
        lower.set(title="Distance from the end", xlabel="training step", ylabel="relative to the start's")
        logarithmic(lower)
        if step == steps[-1] and dots is not None:
            picture.colorbar(dots, ax=rows[0], label="training step", shrink=0.9)
    legend(picture, rows[1:])
    return picture


def embedded(axis: Axes, paths: dict[str, Path]) -> Any:
    """Both paths in one embedding; the method by marker and line, the time by colour, the ends named."""
    points = embedding(np.concatenate([found.states for found in paths.values()]))
    latest = max(found.steps[-1] for found in paths.values())
    dots = None
    start = 0
    ends: dict[str, Array] = {}
    for method, found in paths.items():
        x, y = points[start : start + len(found.steps)].T
        start += len(found.steps)
        seen = look(method)
        ends[seen.label] = np.asarray([x[-1], y[-1]])
        axis.plot(x, y, color=seen.colour, linestyle=seen.line, linewidth=0.8, alpha=0.8, zorder=2)
        dots = axis.scatter(x, y, c=found.steps, vmin=0, vmax=latest, marker=seen.marker, **DOTS)
        axis.plot(x[-1:], y[-1:], marker=seen.marker, markersize=9, color="none", markeredgecolor="black", zorder=4)
    name_ends(axis, ends)
    return dots


def name_ends(axis: Axes, ends: dict[str, Array]) -> None:
    """The names above all points, left and right as the ends are, each with a line to its end."""
    axis.margins(0.08)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.18 * (high - low))
    for place, (name, point) in enumerate(sorted(ends.items(), key=lambda item: float(item[1][0]))):
        axis.annotate(
            f"end, {name}",
            (float(point[0]), float(point[1])),
            xytext=(0.02 + 0.96 * place, 0.98),
            textcoords="axes fraction",
            ha="left" if place == 0 else "right",
            va="top",
            fontsize=8,
            arrowprops={"arrowstyle": "-", "color": "#444444", "linewidth": 0.7, "shrinkB": 5},
        )


def embedding(states: Array) -> Array:
    """t-SNE, exact and with a fixed seed; few points take a smaller perplexity, too few are shown in two of their dimensions."""
    from sklearn.manifold import TSNE  # pyright: ignore[reportMissingTypeStubs]  # slow to import, for this figure only

    if len(states) < FEWEST or not np.ptp(states, axis=0).any():
        return states[:, :2]
    perplexity = min(PERPLEXITY, (len(states) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=0, method="exact").fit_transform(states)
