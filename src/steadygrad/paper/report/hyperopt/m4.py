"""M4: the paths of the weights at meta steps 20 and 40: in time TBPTT oscillates and Neumann-RBP converges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hyperopt.m1 import TENTH
from steadygrad.paper.report.hyperopt.trials import PAPER_K, Cell, Mode, Sorted, seeds
from steadygrad.paper.report.hyperopt.tsne import Path, embedded
from steadygrad.paper.report.panels import Array, grid, legend, logarithmic
from steadygrad.paper.report.section import Finding, Findings
from steadygrad.paper.report.style import curve
from steadygrad.paper.report.trial import MODES, Trial, median
from steadygrad.paper.report.verdicts import Length, Outcome

METHODS = ("tbptt", "neumann-rbp")
PAPER_META_STEPS = (20, 40)
MORE = 2.0
"""The contrast: TBPTT's pace at the end is at least this many times Neumann-RBP's."""
STILL = 0.05
"""A path whose pace at the end is below this share of its mean rests: two such have no contrast."""


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


def paths(trial: Trial) -> dict[int, Path]:
    """By meta step."""
    found = {int(step): path for step, path in (trial.result.get("trajectory") or {}).items() if len(path["state"]) > 1}
    return {step: Path(path["step"], np.asarray(path["state"], dtype=float)) for step, path in found.items()}


def meta_steps(cell: Cell) -> list[int]:
    """The paper's two, or the last two that both methods have."""
    both = set.intersection(*({step for trial in cell.of(method) for step in paths(trial)} for method in METHODS))
    return [step for step in PAPER_META_STEPS if step in both] or sorted(both)[-2:]


def walked(mode: Mode) -> list[Cell]:
    """The settings in which both methods have paths."""
    return [cell for cell in mode.cells if meta_steps(cell)]


def of_step(cell: Cell, method: str, step: int) -> list[Path]:
    return [found[step] for trial in cell.of(method) if step in (found := paths(trial))]


def pace_of(cell: Cell, method: str, step: int) -> float | None:
    return median(pace(path.steps, path.states) for path in of_step(cell, method, step))


def paces(mode: Mode) -> list[tuple[float, float]]:
    """TBPTT's and Neumann-RBP's pace at the end, at the paper's meta steps, medians over seeds."""
    places = [(cell, step) for cell in walked(mode) for step in meta_steps(cell) if step in PAPER_META_STEPS]
    pairs = [(pace_of(cell, METHODS[0], step), pace_of(cell, METHODS[1], step)) for cell, step in places]
    return [(theirs, ours) for theirs, ours in pairs if theirs is not None and ours is not None]


def contrasts(pair: tuple[float, float]) -> bool:
    theirs, ours = pair
    return theirs >= max(STILL, MORE * ours)


def judged(found: Sorted) -> Findings:
    made: list[Finding | None] = []
    for mode in map(found.of, MODES):
        if mode is None or not paces(mode):
            made.append(None)
            continue
        last = max(step for cell in walked(mode) for step in meta_steps(cell))
        outcome, length = Outcome.of(all(map(contrasts, paces(mode)))), Length(last, max(PAPER_META_STEPS), "meta steps")
        made.append(Finding(outcome, of=paces(mode), seeds=seeds(walked(mode)), length=length))
    return made[0], made[1]


def straightness_of(cell: Cell, method: str, step: int) -> float | None:
    return median(straightness(path.states) for path in of_step(cell, method, step))


def moved(cell: Cell, method: str, step: int) -> float | None:
    """How far the last training step moves the state, as the implicit methods measure it."""
    moves = [trial.result.get("movement") or [] for trial in cell.of(method)]
    return median(of[step - 1] for of in moves if step <= len(of))


def shown(mode: Mode) -> tuple[Cell, dict[str, Trial]]:
    """The setting with the largest T and the K nearest to 50, and a trial a method, of the lowest seed that both have."""
    cell = max(walked(mode), key=lambda cell: (len(meta_steps(cell)), cell.T, -abs((cell.K or 0) - PAPER_K)))
    trials = {m: [t for t in cell.of(m) if set(meta_steps(cell)) <= set(paths(t))] for m in METHODS}
    common = set.intersection(*({trial.seed for trial in found} for found in trials.values()))
    return cell, {m: next((t for t in found if t.seed in common), found[0]) for m, found in trials.items() if found}


def walks(mode: Mode) -> Picture:
    """Above: t-SNE of both paths, time as colour; below: the distance from the end, which no embedding can distort."""
    cell, trials = shown(mode)
    picture, rows = grid(2, len(meta_steps(cell)), 2.6)
    dots: Any = None
    for step, upper, lower in zip(meta_steps(cell), *rows, strict=True):
        walked = {method: paths(trial)[step] for method, trial in trials.items()}
        dots = embedded(upper, walked)
        upper.set(title=f"Meta step {step}: t-SNE", xlabel="t-SNE 1", ylabel="t-SNE 2", xticks=[], yticks=[])
        for method, path in walked.items():
            curve(lower, method, path.steps, path.away)
        lower.set(title="Distance from the end", xlabel="training step", ylabel="relative to the start's")
        logarithmic(lower)
    picture.colorbar(dots, ax=rows[0], label="training step", shrink=0.9)
    legend(picture, rows[1:])
    return picture
