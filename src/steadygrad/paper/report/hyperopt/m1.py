"""M1, the meta loss: (a) smoother as T grows, (b) TBPTT's worse as T grows, (c) Neumann-RBP's below RBP's and TBPTT's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hyperopt.trials import Cell, HyperoptTrial, Mode, Sorted, curves, length, seeds
from steadygrad.paper.report.panels import BANDS, Points, grid, legend, lines, logarithmic
from steadygrad.paper.report.section import Figure, Finding, Part, Table, judged
from steadygrad.paper.report.style import look, ordered
from steadygrad.paper.report.text import short, strokes
from steadygrad.paper.report.trial import MODES, finite, median, ratio, seeds_of
from steadygrad.paper.report.verdicts import Outcome

RIVALS = ("rbp-uniform", "tbptt")
"""What Neumann-RBP is to end below."""
LEVEL = 0.01
"""What differs by less than this share is level, neither below the other."""
TENTH = 0.1
MOST = 4
"""Panels across."""
META_LOSS = {"as-published": "meta loss (training)", "corrected": "meta loss (validation)"}
Judge = Callable[[Mode], tuple[Outcome, list[Cell], str]]
"""The outcome, the settings it rests on, and the numbers in words."""


def parts(found: Sorted) -> list[Part]:
    texts = {
        "a": ("The meta loss is smoother as T grows", smoother, "Mean bend of the log curve over T: a measure of our own."),
        "b": ("TBPTT's meta loss is worse as T grows", truncated_worse, "TBPTT's hypergradient points away from BPTT's."),
        "c": ("Neumann-RBP's meta loss is below RBP's and TBPTT's", neumann_lowest, ""),
    }
    return [part(found, f"M1{letter}", text, "curves", judge, why) for letter, (text, judge, why) in texts.items()]


def part(found: Sorted, name: str, text: str, paper: str, judge: Judge, why: str) -> Part:
    """A part of a claim about meta training: both modes judged by one rule."""
    ours, corrected = (finding(found.of(mode), judge) for mode in MODES)
    return judged(name, text, paper, ours, corrected, why)


def finding(mode: Mode | None, judge: Judge) -> Finding | None:
    outcome, cells, words = judge(mode) if mode is not None else (Outcome.MISSING, [], "")
    return Finding(outcome, words, seeds(cells), length(cells)) if cells else None


def smoother(mode: Mode) -> tuple[Outcome, list[Cell], str]:
    """Over the methods and K that every T has."""
    cells = mode.judged(lambda cell: True)
    tried = {T: {(t.method, t.steps) for c in cells if c.T == T for t in c.trials} for T in sorted({c.T for c in cells})}
    common = set.intersection(*tried.values()) if tried else set[tuple[str, int | None]]()
    bends: dict[int, float] = {}
    for T in tried:
        trials = [t for c in cells if c.T == T for t in c.trials if (t.method, t.steps) in common]
        if (value := median(bend(trial.meta_loss) for trial in trials)) is not None:
            bends[T] = value
    if len(bends) < 2:
        return Outcome.MISSING, [], ""
    falls = all(later < (1 - LEVEL) * earlier for earlier, later in pairwise(bends.values()))
    return Outcome.of(falls), cells, f"bend {strokes(list(bends.values()))} at T = {' / '.join(map(str, bends))}"


def truncated_worse(mode: Mode) -> tuple[Outcome, list[Cell], str]:
    cells = mode.judged(lambda cell: beside_exact(cell, "tbptt") is not None)
    words: list[str] = []
    grows: list[bool] = []
    for K in sorted({cell.K for cell in cells}, key=lambda K: K or 0):
        ends = {cell.T: beside_exact(cell, "tbptt") or 0.0 for cell in cells if cell.K == K}
        if len(ends) > 1:
            grows.append(all(later > (1 + LEVEL) * earlier for earlier, later in pairwise(ends.values())))
            words.append(f"{strokes(list(ends.values()), 3)} (K = {K})")
    if not grows:
        return Outcome.MISSING, [], ""
    T = " / ".join(str(T) for T in sorted({cell.T for cell in cells}))
    return Outcome.of(all(grows)), cells, f"{', '.join(words)} times BPTT's at T = {T}"


def neumann_lowest(mode: Mode) -> tuple[Outcome, list[Cell], str]:
    cells = mode.judged(lambda cell: all(final(cell, method) is not None for method in ("neumann-rbp", *RIVALS)))
    if not cells:
        return Outcome.MISSING, [], ""
    below = [all(final_of(c, "neumann-rbp") < (1 - LEVEL) * final_of(c, rival) for rival in RIVALS) for c in cells]
    return Outcome.of(all(below)), cells, f"below both in {sum(below)} of {len(below)} settings"


def beside_exact(cell: Cell, method: str) -> float | None:
    """Where a method's meta loss ends, relative to BPTT's from the same seed; median over seeds."""
    return median(ratio(end(trial.meta_loss), end(exact.meta_loss)) for trial, exact in cell.pairs(method))


def final(cell: Cell, method: str) -> float | None:
    """Where a method's meta loss ends, median over seeds."""
    return median(end(trial.meta_loss) for trial in cell.of(method))


def final_of(cell: Cell, method: str) -> float:
    return final(cell, method) or 0.0


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


def numbers(found: Sorted) -> list[tuple[str, dict[str, float]]]:
    """The median cosine to BPTT's hypergradient over all T, K, seeds and meta steps at which it was taken."""
    shown: list[tuple[str, dict[str, float]]] = []
    for mode in found.tuned:
        cosines: dict[str, float] = {}
        for method in ("neumann-rbp", *RIVALS):
            taken = [(t.result.get("reference") or {}).get("cosine") or [] for t in mode.tuned if t.method == method]
            if (value := median(cosine for one in taken for cosine in one)) is not None:
                cosines[look(method).label] = value
        if cosines:
            shown.append((mode.title, cosines))
    return shown


def figures(found: Sorted) -> list[Figure]:
    return [
        Figure(
            f"hyperopt-m1-{mode.name}",
            f"M1, {mode.title.lower()}: meta loss over meta steps, a panel a T and K. BPTT and auto have no K. {BANDS}",
            f"Meta loss curves in panels: {panels(mode)}; where they end is in the table below.",
            partial(table_of_panels, mode, tuned, "meta step", META_LOSS[mode.name]),
            len(mode.tuned),
        )
        for mode in found.tuned
    ]


def tuned(trial: HyperoptTrial) -> Points:
    return range(1, len(trial.meta_loss) + 1), trial.meta_loss


def panels(mode: Mode) -> str:
    return "; ".join(cell.title for cell in mode.cells)


def table_of_panels(mode: Mode, series: Any, xlabel: str, ylabel: str) -> Picture:
    """Columns: T; rows: K. Where many of them were not tried, those that were, one after the other."""
    table = [[mode.cell(T, K) for T in mode.lengths] for K in mode.counts]
    if any(None in row for row in table):
        found = sorted(mode.cells, key=lambda cell: (cell.K or 0, cell.T))
        across = min(MOST, len(found))
        table = [[*found[i : i + across], *[None] * (i + across - len(found))] for i in range(0, len(found), across)]
    picture, rows = grid(len(table), len(table[0]), 1.9)
    for cells, axes in zip(table, rows, strict=True):
        for cell, axis in zip(cells, axes, strict=True):
            if cell is None:
                axis.set_axis_off()
            else:
                lines(axis, curves(cell, series))
                axis.set(title=cell.title)
                logarithmic(axis)
    label(rows, xlabel, ylabel)
    legend(picture, rows)
    return picture


def label(rows: Sequence[Sequence[Axes]], xlabel: str, ylabel: str) -> None:
    """Words at the left and below only: panels of a table share them."""
    for axes in rows:
        next(axis for axis in axes if axis.axison).set_ylabel(ylabel)
    for column in zip(*rows, strict=True):
        [axis for axis in column if axis.axison][-1].set_xlabel(xlabel)


def tables(found: Sorted) -> list[Table]:
    """Where the meta loss of each method ends, a row a T and K."""
    return [table(mode) for mode in found.tuned]


def table(mode: Mode) -> Table:
    methods = ordered([trial.method for trial in mode.tuned])
    rows: list[tuple[str, ...]] = []
    for cell in mode.cells:
        start = median(trial.meta_loss[0] for trial in cell.trials)
        rough = median(bend(trial.meta_loss) for trial in cell.trials)
        numbers = map(short, (start, *(final(cell, method) for method in methods), rough))
        place = (str(cell.T), "–" if cell.K is None else str(cell.K), str(cell.meta_steps))
        rows.append((*place, *numbers, str(seeds_of(cell.trials))))
    return Table(
        f"hyperopt-m1-ends-{mode.name}",
        f"M1, {mode.title.lower()}: where the meta loss ends.",
        ("T", "K", "meta steps", "start", *(look(method).label for method in methods), "bend", "seeds"),
        tuple(rows),
        "Median of the last tenth of the meta steps, then over seeds. Bend: mean |Δ² log L|, how rough the curve is on a "
        "logarithmic axis (0: straight), median over all its trials; part (a) compares it between T over the methods and K that "
        "every T has.",
    )
