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
FEW = 4
"""But so many steps may always be taken ahead where a rate is known: a look takes as long as one or two cheap ones."""
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
        ahead = min(left, max(step // SHARE, FEW)) if math.isfinite(left) else min(BLIND, step // SHARE)
        return min(step + max(math.ceil(ahead), 1), self.limit)


def later_half(history: list[tuple[int, Any]]) -> tuple[int, Any]:
    """The first look in the later half of the steps taken, or the last but one if that is earlier."""
    now = history[-1][0]
    found = history[-2:][0]
    for entry in reversed(history[:-1]):
        if 2 * entry[0] < now:
            break
        found = entry
    return found


class Judge:
    """Follows the residuals of the problems that are open: which go on, how the others ended, when to look again.

    All arrays without another word have a row an open problem; they shrink as problems end. Most looks end nothing, so what is
    only needed where something ends is not worked out before.
    """

    def __init__(self, goal: Goal, problems: int) -> None:
        self.goal = goal
        self.rows: Rows = slice(None)
        """The open problems, among all."""
        self.places: Rows = slice(None)
        """The open problems, among those that are present."""
        self.trace: list[tuple[int, float]] = []
        """(step, the largest relative residual of all problems that were open)."""
        self.code = numpy.zeros(problems, dtype=numpy.int64)
        """How each of all problems ended."""
        self.ends = numpy.zeros(problems, dtype=numpy.int64)
        """The step at which each of all problems ended."""
        self.first: Numbers = numpy.zeros(problems)
        """The first residual norm of each of all problems."""
        self.scale: Numbers = numpy.zeros((problems, len(goal.sizes))) if goal.scale is None else goal.scale
        """(all problems, leaves): what residuals are relative to, at their last look."""
        self.total: Numbers = numpy.zeros(problems)
        """The residual norms at the last look."""
        self._open = numpy.arange(problems)
        self._start: Numbers = self.first
        self._smallest: Numbers = numpy.full(problems, math.inf)
        self._mark: Numbers = numpy.full(problems, math.inf)
        self._marked = numpy.zeros(problems, dtype=numpy.int64)
        self._early: Numbers = numpy.zeros(problems)
        self._largest: Numbers = numpy.zeros((problems, len(goal.sizes)))
        self._greatest: Numbers = numpy.zeros(problems)
        self._began: Numbers = numpy.zeros(problems)
        self._history: list[tuple[int, Numbers]] = []
        """(step, the logarithm of how many times too large the residual is)."""
        self._left: Numbers = self.total

    @property
    def over(self) -> bool:
        """Whether no problem is open."""
        return not len(self._open)

    @property
    def statuses(self) -> list[Status]:
        return [_STATUS[code] for code in self.code.tolist()]

    def look(self, step: int, residual: Numbers, size: Numbers, reach: Callable[[], Numbers] | None = None) -> Mask:
        """Take note of the residuals (present problems, leaves), and of the sizes of the iterates.

        `reach` tells how large each leaf becomes where the state changes by its own size. Returns which of the open problems
        are below the tolerance.
        """
        goal = self.goal
        residual, size = residual[self.places], size[self.places]
        scale = self._scale(size)
        if reach is not None and goal.rtol is not None:
            scale = self._with_vanishing_leaves(residual, size, scale, reach)
        total = residual[:, 0] if residual.shape[1] == 1 else numpy.sqrt(numpy.square(residual).sum(axis=1))
        relative = (residual / scale).max(axis=1)
        tolerance = scale * (goal.negligible if goal.rtol is None else goal.rtol) + goal.atol
        excess = (residual / tolerance).max(axis=1)
        if not total.all():
            relative[total == 0] = excess[total == 0] = 0.0  # also where the scale is zero
        if not self._history:
            self._start = self.first[self.rows] = total
            self._began = _whole(size)
        self._history.append((step, numpy.log(excess)))
        self.trace.append((step, float(relative.max())))
        if 2 * step <= goal.limit:
            self._early = numpy.fmax(self._early, total)
        self._smallest = numpy.fmin(total, self._smallest)
        self._greatest = numpy.fmax(self._greatest, total)
        improved = total < 0.99 * self._mark
        if improved.all():
            self._mark, self._marked = total, numpy.full(len(total), step)
        else:
            self._mark = numpy.where(improved, total, self._mark)
            self._marked = numpy.where(improved, step, self._marked)
        self.total = total
        self._left = self._steps_left()
        below: Mask = excess <= 1
        if goal.scale is None and below.any():
            below &= ~self._drift(size)
        return below

    def rate(self) -> Numbers:
        """By how much residuals have fallen in a step, of late; 1 where they have not."""
        now, excess = self._history[-1]
        then, earlier = later_half(self._history)
        if then == now:
            return numpy.ones(len(excess))
        rate = numpy.exp((excess - earlier) / (now - then))
        return numpy.where(rate < 1, rate, 1.0)

    def _drift(self, size: Numbers) -> Mask:
        """Which problems have a residual that is small beside the iterate only because that has grown."""
        whole = _whole(size)
        visible = numpy.fmax(self.total, 4 * self.goal.rounding * whole)  # in an iterate so large a smaller one is rounded away
        return (visible > SHRUNK * self._greatest) & (whole > FAR * self._began)

    def judge(self, step: int, converged: Mask, travels: Mask | None) -> Mask | None:
        """Which problems end now, None for none; their ends are noted. `travels` says which are still on their way."""
        goal, total = self.goal, self.total
        stagnant = self._stagnant(step)
        if step < goal.limit and stagnant is None and not converged.any() and self._harmless():
            return None
        code = numpy.zeros(len(total), dtype=numpy.int64)
        if goal.rtol is not None:
            if stagnant is not None:
                code[stagnant if travels is None else stagnant & ~travels] = STAGNATED
            code[total > goal.growth * self._smallest] = DIVERGED
        if step >= goal.limit:
            code[(code == GOES_ON) & (total > GREW * self._early) & (self._early > 0)] = DIVERGED
        if goal.rtol is not None:
            code[converged] = CONVERGED
        code[~(numpy.isfinite(total) & numpy.isfinite(self.scale[self.rows]).all(axis=1))] = NONFINITE
        ended: Mask = (code != GOES_ON) if step < goal.limit else numpy.ones(len(total), dtype=bool)
        if goal.rtol is None and goal.negligible > 0:
            ended |= converged  # below what counts as a residual at all
        if not ended.any():
            return None
        self.code[self._open[ended]], self.ends[self._open[ended]] = code[ended], step
        return ended

    def _harmless(self) -> bool:
        """Whether all residuals are finite and none has grown much."""
        sizes = 0.0 if self.goal.scale is not None else self.scale[self.rows].sum()
        if not math.isfinite(self.total.sum() + sizes):
            return False
        return self.goal.rtol is None or not (self.total > self.goal.growth * self._smallest).any()

    def _stagnant(self, step: int) -> Mask | None:
        """Which problems have not improved for long; None for none."""
        if self.goal.rtol is None or step <= PATIENCE:
            return None
        stagnant: Mask = step - self._marked > PATIENCE
        return stagnant if stagnant.any() else None

    def stagnates(self, step: int) -> bool:
        """Whether some problem has not improved for long, so that it matters whether it still travels."""
        return self._stagnant(step) is not None

    def forget(self, ended: Mask) -> None:
        """These have ended: nothing more is noted of them."""
        stay = ~ended
        places = numpy.arange(len(ended)) if isinstance(self.places, slice) else self.places
        self.places = places[stay]
        self.rows = self._open = self._open[stay]
        self._history = [(step, excess[stay]) for step, excess in self._history]
        for name in _A_ROW_EACH:
            setattr(self, name, getattr(self, name)[stay])

    def only_open_are_present(self) -> None:
        """The others have been left out of the state."""
        self.places = slice(None)

    def forecast(self, step: int) -> Forecast:
        """What the open problems still need, at the rate of the later half of their steps."""
        grown = float((self.total / self._start).max())
        return Forecast(step, float(self._left.max()), grown, float(self._history[-1][1].max()))

    def steps_left(self) -> float:
        """Steps until half of the open problems reach their tolerance, at the rate of late.

        A look for every problem that ends would cost more than the steps that it takes too many.
        """
        middle = (len(self._left) - 1) // 2
        return float(numpy.partition(self._left, middle)[middle])

    def _steps_left(self) -> Numbers:
        """Steps that each problem still needs, at the rate of the later half; infinite where its residual does not fall."""
        now, excess = self._history[-1]
        then, earlier = later_half(self._history)
        if then == now:
            return numpy.full(len(excess), math.inf)
        steps = excess * ((now - then) / (earlier - excess))
        return numpy.where(excess <= 0, 1.0, numpy.where(steps > 0, steps, math.inf))

    def _scale(self, size: Numbers) -> Numbers:
        """What residuals are relative to; for a leaf that vanishes, the last digit of the largest that it has been."""
        if self.goal.scale is not None:
            return self.goal.scale[self.rows]
        self._largest = numpy.fmax(self._largest, size)
        scale = self.scale[self.rows] = numpy.fmax(size, self.goal.rounding * self._largest)
        return scale

    def _with_vanishing_leaves(
        self, residual: Numbers, size: Numbers, scale: Numbers, reach: Callable[[], Numbers]
    ) -> Numbers:
        """The scale with that of leaves that rest at zero, which have no size of their own: what they can become.

        The momentum of an optimiser is zero where its parameters rest. F is asked for it only where such leaves alone, far
        below what they have been, keep a row from its tolerance.
        """
        goal = self.goal
        assert goal.rtol is not None
        missed = residual > goal.rtol * scale + goal.atol
        vanishing = missed & (size < VANISHING * self._largest)
        decisive = vanishing & ~(missed & ~vanishing).any(axis=1, keepdims=True)
        if not decisive.any():
            return scale
        whole = _whole(size)[:, None]
        scale = numpy.where(decisive, numpy.fmax(scale, numpy.fmin(reach()[self.places], whole)), scale)
        self.scale[self.rows] = scale
        return scale


_A_ROW_EACH = ("total", "_start", "_smallest", "_mark", "_marked", "_early", "_largest", "_greatest", "_began", "_left")
"""The arrays of a judge that have a row an open problem."""


def _whole(size: Numbers) -> Numbers:
    """The norm of all leaves together."""
    return size[:, 0] if size.shape[1] == 1 else numpy.sqrt(numpy.square(size).sum(axis=1))
