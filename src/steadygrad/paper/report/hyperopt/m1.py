"""M1, the meta loss: (a) smoother as T grows, (b) TBPTT's worse as T grows, (c) Neumann-RBP's below RBP's and TBPTT's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hyperopt.trials import PAPER_SETTINGS, PAPER_STEPS, Cell, Mode
from steadygrad.paper.report.panels import Panel, Points, draw, numbered
from steadygrad.paper.report.trial import Measure, Trial, finite, median, ratio
from steadygrad.paper.report.verdicts import Case, Finding, over

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


def comparable(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The settings that differ in T and K only, group by group."""
    return [[cell for cell in cells if cell.alike == alike] for alike in sorted({cell.alike for cell in cells})]


def alone(mode: Mode | None) -> list[Cell]:
    """Settings whose T cannot be compared with another."""
    groups = comparable(mode.evidence(lambda cell: True)) if mode else []
    return [cell for cells in groups if len({cell.T for cell in cells}) == 1 for cell in cells]


def steps(ends: dict[int, float], cells: Sequence[Cell], holds: Callable[[float, float], bool]) -> list[Case]:
    """From each T to the next: does it hold between what was found at the two?"""
    made: list[Case] = []
    for (T, earlier), (following, later) in pairwise(ends.items()):
        both = [cell for cell in cells if cell.T in (T, following)]
        name = f"T = {T} to {following}, K = {' and '.join(dict.fromkeys(str(cell.K) for cell in both))}"
        made.append(Case(holds(earlier, later), both[0].length, name, [cell.seeds for cell in both]))
    return made


def smoother(mode: Mode) -> Finding:
    """The bend at each T, over the methods and K that every T has: does it fall?"""
    cases, known = list[Case](), list[dict[int, float]]()
    for cells in comparable(mode.evidence(lambda cell: True)):
        trials = {T: [t for c in cells if c.T == T for t in c.trials] for T in sorted({c.T for c in cells})}
        common = set.intersection(*({(t.method, t.K) for t in of} for of in trials.values()))
        bends = {T: roughness([t for t in of if (t.method, t.K) in common]) for T, of in trials.items()}
        known.append({T: value for T, value in bends.items() if value is not None})
        cases += steps(known[-1], cells, lambda earlier, later: later < (1 - LEVEL) * earlier)
    return over(cases, PAPER_STEPS, of=[of for of in known if len(of) > 1])


def truncated_worse(mode: Mode) -> Finding:
    """Where TBPTT's meta loss ends beside BPTT's, at each K and T: does it grow with T?"""
    cases, known = list[Case](), dict[tuple[int, ...], dict[int, list[float]]]()
    for cells in comparable(mode.evidence(lambda cell: beside_exact(cell, "tbptt") is not None)):
        for K in sorted({cell.K or 0 for cell in cells}):
            of = sorted((cell for cell in cells if cell.K == K), key=lambda cell: cell.T)
            ends = {cell.T: beside_exact(cell, "tbptt") or 0.0 for cell in of}
            cases += steps(ends, of, lambda earlier, later: later > (1 + LEVEL) * earlier)
            if len(ends) > 1:
                known.setdefault(tuple(ends), {})[K] = list(ends.values())
    return over(cases, 2 * PAPER_STEPS, of=known)  # at two K


def neumann_lowest(mode: Mode, measure: Measure = meta_end) -> Finding:
    """Is Neumann-RBP's end below both rivals', in each setting?"""
    ends = {cell.title: [cell.median(method, measure) for method in ("neumann-rbp", *RIVALS)] for cell in mode.cells}
    cases: list[Case] = []
    for cell in mode.evidence(lambda cell: None not in ends[cell.title]):
        ours, *theirs = (value or 0.0 for value in ends[cell.title])
        cases.append(Case(ours < (1 - LEVEL) * min(theirs), cell.length, cell.title, [cell.seeds]))
    return over(cases, PAPER_SETTINGS)


def tuned(trial: Trial) -> Points:
    return numbered(trial.result["meta_loss"])


def curves(mode: Mode, series: Callable[[Trial], Points | None], x: str, y: str) -> Picture:
    """A panel a T and K. Columns: T; rows: K."""
    panels = {(cell.T, cell.K): Panel(cell.curves(series), cell.title, x, y, log=True) for cell in mode.cells}
    return draw([[panels.get((T, K)) for T in mode.lengths] for K in mode.counts], height=1.9)
