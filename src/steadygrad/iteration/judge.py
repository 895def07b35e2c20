"""When an iteration stops, and how it ended: judged in plain numbers, all problems at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
from torch import Tensor

from steadygrad.iteration.norms import Mask, Numbers, Rows
from steadygrad.iteration.solver import Forecast
from steadygrad.solution import Status

PATIENCE = 100
"""Steps without a residual one per cent smaller after which an iteration stagnates."""
SELDOM = 10
"""Residuals are taken every so many steps where no tolerance waits for them: a norm a step costs up to a fifth."""
SHARE = 3
"""No look is further ahead than the steps taken, divided by this: a wrong guess is cheap, and divergence does not run on."""
BLIND = 10
"""Nor further ahead than this many steps where the residual does not fall, so that nothing can be predicted."""
VANISHING = 0.1
"""A leaf that has shrunk to less than this of the largest that it has been may be on its way to zero."""
SHRUNK = 0.1
FAR = 10.0
"""An iterate that has grown by more than FAR while its residual stays above SHRUNK of the greatest runs away: relative to the
iterate any residual becomes small."""
GREW = 2.0
"""A residual at the end that exceeds all of the first half by this factor grows, however slowly."""

GOES_ON, CONVERGED, DIVERGED, NONFINITE, STAGNATED = range(5)
_STATUS = [Status.MAX_STEPS, Status.CONVERGED, Status.DIVERGED, Status.NONFINITE, Status.STAGNATED]


@dataclass(frozen=True)
class Goal:
    """When an iteration may stop, and what is kept of it.

    With `rtol` a problem stops once ‖r‖ ≤ rtol·scale + atol in every leaf of the state; without, exactly `limit` steps are
    taken, or fewer if all residuals fall below `negligible`·scale.
    """

    limit: int
    rtol: float | None
    atol: float = 0.0
    sizes: tuple[int, ...] = ()
    """The columns of each leaf of the state."""
    scale: Numbers | None = None
    """(problems, leaves): what residuals are relative to; None for the size of the iterate itself."""
    growth: float = 1e8
    """A residual above its smallest by this factor has diverged. A nonlinear iteration that leaves an unstable point for a
    stable one grows a lot and then stops, and the transients of non-normal maps stay below 1e4."""
    best: bool = False
    """Keep the iterate of the smallest residual instead of the last."""
    negligible: float = 0.0
    trusted: float | None = None
    """The largest estimated distance from the solution with which an iterate passes for converged; None: not estimated."""
    rounding: float = 0.0
    """Relative residuals below this are rounding errors."""
    trail: int = 2
    """States kept for the estimate of the error."""
    reach: Callable[[Any, Tensor], Tensor] | None = None
    """Gives, for a problem and its iterate, how F changes with the iterate, scaled to a change by its own size."""

    def due(self, step: int, left: float) -> int:
        """When to look again with so many steps left: then, but never much further ahead than what has been seen."""
        if self.rtol is None:
            return min(step - step % SELDOM + SELDOM, self.limit)
        ahead = min(left, step // SHARE) if math.isfinite(left) else min(BLIND, step // SHARE)
        return min(step + max(math.ceil(ahead), 1), self.limit)


def later_half(history: list[tuple[int, Any]]) -> tuple[int, Any]:
    """The first look in the later half of the steps taken."""
    now = history[-1][0]
    for entry in reversed(history):
        if 2 * entry[0] < now:
            break
        found = entry
    return found  # pyright: ignore[reportPossiblyUnboundVariable]


class Judge:
    """Follows the residuals of all problems: which go on, how the others ended, when to look again."""

    def __init__(self, goal: Goal, problems: int) -> None:
        self.goal = goal
        self.trace: list[tuple[int, float]] = []
        """(step, the largest relative residual of all problems that were open)."""
        self.code = numpy.zeros(problems, dtype=numpy.int64)
        self.open = numpy.ones(problems, dtype=bool)
        self.ends = numpy.zeros(problems, dtype=numpy.int64)
        """The step at which each problem ended."""
        self.first: Numbers = numpy.zeros(problems)
        self.smallest: Numbers = numpy.full(problems, math.inf)
        self._mark: Numbers = numpy.full(problems, math.inf)
        self._marked = numpy.zeros(problems, dtype=numpy.int64)
        self._early: Numbers = numpy.zeros(problems)
        self.scale: Numbers = numpy.zeros((problems, len(goal.sizes))) if goal.scale is None else goal.scale
        """(problems, leaves): what residuals are relative to, at the last look."""
        self._largest: Numbers = numpy.zeros((problems, len(goal.sizes)))
        self._greatest: Numbers = numpy.zeros(problems)
        self._began: Numbers = numpy.zeros(problems)
        self._history: list[tuple[int, Numbers]] = []
        self.total: Numbers = numpy.zeros(problems)
        """The residual norms of the present rows at the last look."""

    @property
    def statuses(self) -> list[Status]:
        return [_STATUS[code] for code in self.code.tolist()]

    def look(self, step: int, rows: Rows, residual: Numbers, size: Numbers, reach: Callable[[], Numbers] | None = None) -> Mask:
        """Take note of the residuals (rows, leaves) of the rows that are present, and of the sizes of the iterates.

        `reach` tells how large each leaf becomes where the state changes by its own size. Returns which of the rows are
        below the tolerance.
        """
        goal = self.goal
        scale = self._scale(rows, size)
        if reach is not None and goal.rtol is not None:
            scale = self._with_vanishing_leaves(rows, residual, size, scale, reach)
        total = residual[:, 0] if residual.shape[1] == 1 else numpy.sqrt(numpy.square(residual).sum(axis=1))
        with numpy.errstate(all="ignore"):
            relative = (residual / scale).max(axis=1)
            tolerance = scale * (goal.negligible if goal.rtol is None else goal.rtol) + goal.atol
            excess = (residual / tolerance).max(axis=1)
        relative[total == 0] = excess[total == 0] = 0.0  # also where the scale is zero
        if not self._history:
            self.first[rows] = total
        self._history.append((step, excess))
        present = self.open[rows]
        self.trace.append((step, float(relative[present].max())))
        if 2 * step <= goal.limit:
            self._early[rows] = numpy.fmax(self._early[rows], total)
        self.smallest[rows] = numpy.fmin(total, self.smallest[rows])
        improved = total < 0.99 * self._mark[rows]
        self._mark[rows] = numpy.where(improved, total, self._mark[rows])
        self._marked[rows] = numpy.where(improved, step, self._marked[rows])
        self.total = total
        below: Mask = excess <= 1
        if goal.scale is None:
            below &= ~self._drift(rows, total, size)
        return below

    def rate(self, rows: Rows) -> Numbers:
        """By how much the residuals of the present rows have fallen in a step, of late; 1 where they have not."""
        now, excess = self._history[-1]
        then, earlier = later_half(self._history)
        if then == now:
            return numpy.ones(len(excess))
        with numpy.errstate(all="ignore"):
            rate = (excess / earlier) ** (1 / (now - then))
        return numpy.where(rate < 1, rate, 1.0)

    def _drift(self, rows: Rows, total: Numbers, size: Numbers) -> Mask:
        """Which rows have a residual that is small beside the iterate only because that has grown."""
        whole = numpy.sqrt(numpy.square(size).sum(axis=1))
        if len(self._history) == 1:
            self._began[rows] = whole
        self._greatest[rows] = numpy.fmax(self._greatest[rows], total)
        visible = numpy.fmax(total, 4 * self.goal.rounding * whole)  # in an iterate so large a smaller one is rounded away
        return (visible > SHRUNK * self._greatest[rows]) & (whole > FAR * self._began[rows])

    def judge(self, step: int, rows: Rows, converged: Mask, travels: Mask | None) -> Mask:
        """Which of the present rows end now; their ends are noted. `travels` says which are still on their way."""
        goal, total = self.goal, self.total
        code = numpy.zeros(len(total), dtype=numpy.int64)
        if goal.rtol is not None:
            stagnant = step - self._marked[rows] > PATIENCE
            code[stagnant if travels is None else stagnant & ~travels] = STAGNATED
            with numpy.errstate(all="ignore"):
                code[total > goal.growth * self.smallest[rows]] = DIVERGED
        if step >= goal.limit:
            code[(code == GOES_ON) & (total > GREW * self._early[rows]) & (self._early[rows] > 0)] = DIVERGED
        if goal.rtol is not None:
            code[converged] = CONVERGED
        code[~(numpy.isfinite(total) & numpy.isfinite(self.scale[rows]).all(axis=1))] = NONFINITE
        present = self.open[rows]
        ended = (code != GOES_ON) if step < goal.limit else numpy.ones_like(present)
        if goal.rtol is None and goal.negligible > 0:
            ended |= converged  # below what counts as a residual at all
        ended &= present
        if ended.any():
            codes, still, ends = self.code[rows], self.open[rows], self.ends[rows]
            codes[ended], still[ended], ends[ended] = code[ended], False, step
            self.code[rows], self.open[rows], self.ends[rows] = codes, still, ends
        return ended

    def stagnates(self, step: int, rows: Rows) -> bool:
        """Whether some open row has not improved for long, so that it matters whether it still travels."""
        return bool((self.open[rows] & (step - self._marked[rows] > PATIENCE)).any())

    def drop(self, keep: Mask) -> None:
        """Only these of the present rows go on."""
        self._history = [(step, excess[keep]) for step, excess in self._history]
        self.total = self.total[keep]

    def forecast(self, step: int, rows: Rows) -> Forecast:
        """What the open rows still need, at the rate of the later half of their steps."""
        present = self.open[rows]
        left = self._left()[present]
        with numpy.errstate(all="ignore"):
            grown = float((self.total / self.first[rows])[present].max())
            decades = float(numpy.log(self._history[-1][1][present]).max())
        return Forecast(step, float(left.max()), grown, decades)

    def steps_left(self, rows: Rows) -> float:
        """Steps until half of the open rows reach their tolerance, at the rate of late.

        A look for every row that ends would cost more than the steps that a row takes too many.
        """
        left = numpy.sort(self._left()[self.open[rows]])
        return float(left[(len(left) - 1) // 2])

    def _left(self) -> Numbers:
        """Steps that each present row still needs, at the rate of the later half; infinite where its residual does not fall."""
        now, excess = self._history[-1]
        then, earlier = later_half(self._history)
        if then == now:
            return numpy.full(len(excess), math.inf)
        with numpy.errstate(all="ignore"):
            left = numpy.log(excess)
            steps = left * (now - then) / (numpy.log(earlier) - left)
        return numpy.where(excess <= 1, 1.0, numpy.where(steps > 0, steps, math.inf))

    def _scale(self, rows: Rows, size: Numbers) -> Numbers:
        """What residuals are relative to; for a leaf that vanishes, the last digit of the largest that it has been."""
        if self.goal.scale is not None:
            return self.goal.scale[rows]
        largest = numpy.fmax(self._largest[rows], size)
        self._largest[rows] = largest
        self.scale[rows] = numpy.fmax(size, self.goal.rounding * largest)
        return self.scale[rows]

    def _with_vanishing_leaves(
        self, rows: Rows, residual: Numbers, size: Numbers, scale: Numbers, reach: Callable[[], Numbers]
    ) -> Numbers:
        """The scale with that of leaves that rest at zero, which have no size of their own: what they can become.

        The momentum of an optimiser is zero where its parameters rest. F is asked for it only where such leaves alone, far
        below what they have been, keep a row from its tolerance.
        """
        goal = self.goal
        assert goal.rtol is not None
        missed = residual > goal.rtol * scale + goal.atol
        vanishing = missed & (size < VANISHING * self._largest[rows])
        decisive = vanishing & ~(missed & ~vanishing).any(axis=1, keepdims=True) & self.open[rows][:, None]
        if not decisive.any():
            return scale
        whole = numpy.sqrt(numpy.square(size).sum(axis=1, keepdims=True))
        self.scale[rows] = numpy.where(decisive, numpy.fmax(scale, numpy.fmin(reach(), whole)), scale)
        return self.scale[rows]
