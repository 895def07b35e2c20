"""M1, the meta loss: (a) smoother as T grows, (b) TBPTT's worse as T grows, (c) Neumann-RBP's below RBP's and TBPTT's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hyperopt.trials import Cell, Mode
from steadygrad.paper.report.panels import Panel, Points, draw
from steadygrad.paper.report.trial import Measure, Trial, finite, median, ratio

RIVALS = ("rbp-uniform", "tbptt")
"""What Neumann-RBP is to end below."""
LEVEL = 0.01
"""What differs by less than this share is level, neither below the other."""
TENTH = 0.1


def end(curve: Sequence[float | None]) -> float | None:
    """The median of the last tenth, at least of the last point; None where nothing in it is finite."""
    return median(curve[-max(1, round(TENTH * len(curve))) :])


def bend(curve: Sequence[float | None]) -> float | None:
    """How rough a curve is on a logarithmic axis: the mean of |log L_{m+1} − 2 log L_m + log L_{m−1}|. A straight line has 0.

    None for fewer than three points.
    """
    logs = [math.log(value) for value in finite(curve) if value > 0]
    bends = [abs(c - 2 * b + a) for a, b, c in zip(logs, logs[1:], logs[2:], strict=False)]
    return statistics.fmean(bends) if bends else None


def meta_end(trial: Trial) -> float | None:
    return end(trial.result["meta_loss"])


def roughness(trials: Sequence[Trial]) -> float | None:
    return median(bend(trial.result["meta_loss"]) for trial in trials)


def beside_exact(cell: Cell, method: str, measure: Measure = meta_end) -> float | None:
    """Where a method's loss ends, relative to BPTT's from the same seed; median over seeds."""
    return median(ratio(measure(trial), measure(exact)) for trial, exact in cell.pairs(method))


def smoother(mode: Mode) -> tuple[bool | None, list[Cell], dict[int, float]]:
    """The bend at each T, over the methods and K that every T has: does it fall?"""
    cells = mode.evidence(lambda cell: True)
    trials = {T: [t for c in cells if c.T == T for t in c.trials] for T in sorted({c.T for c in cells})}
    common = set.intersection(*({(t.method, t.K) for t in of} for of in trials.values())) if trials else set[Any]()
    bends = {T: roughness([t for t in of if (t.method, t.K) in common]) for T, of in trials.items()}
    known = {T: value for T, value in bends.items() if value is not None}
    falls = all(later < (1 - LEVEL) * earlier for earlier, later in pairwise(known.values()))
    return falls if len(known) > 1 else None, cells, known


def truncated_worse(mode: Mode) -> tuple[bool | None, list[Cell], dict[int, dict[int, float]]]:
    """Where TBPTT's meta loss ends beside BPTT's, at each K and T: does it grow with T?"""
    cells = mode.evidence(lambda cell: beside_exact(cell, "tbptt") is not None)
    ends: dict[int, dict[int, float]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.K or 0, cell.T)):
        ends.setdefault(cell.K or 0, {})[cell.T] = beside_exact(cell, "tbptt") or 0.0
    known = {K: of for K, of in ends.items() if len(of) > 1}
    grows = [later > (1 + LEVEL) * earlier for of in known.values() for earlier, later in pairwise(of.values())]
    return all(grows) if grows else None, cells, known


def neumann_lowest(mode: Mode, measure: Measure = meta_end) -> tuple[bool | None, list[Cell], list[bool]]:
    """Is Neumann-RBP's end below both rivals', in each setting?"""
    ends = {cell.title: [cell.median(method, measure) for method in ("neumann-rbp", *RIVALS)] for cell in mode.cells}
    cells = mode.evidence(lambda cell: None not in ends[cell.title])
    below = [all((ends[c.title][0] or 0) < (1 - LEVEL) * (theirs or 0) for theirs in ends[c.title][1:]) for c in cells]
    return all(below) if below else None, cells, below


def tuned(trial: Trial) -> Points:
    return range(1, len(trial.result["meta_loss"]) + 1), trial.result["meta_loss"]


def curves(mode: Mode, series: Callable[[Trial], Points | None], x: str, y: str) -> Picture:
    """A panel a T and K. Columns: T; rows: K."""
    panels = {(cell.T, cell.K): Panel(cell.curves(series), cell.title, x, y, log=True) for cell in mode.cells}
    return draw([[panels.get((T, K)) for T in mode.lengths] for K in mode.counts], height=1.9)
