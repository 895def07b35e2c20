"""Which problems end, by how their residuals fall: judged in plain numbers, all problems at once.

Most looks end nothing. Those cost a few comparisons of the extremes over all open problems (`something_ends`); the rules, for
one problem as for many, are worked out from the history only where one of them may apply (`judge`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy

from steadygrad.iteration.error import FLOOR
from steadygrad.iteration.goal import Goal
from steadygrad.iteration.history import PATIENCE, ResidualHistory
from steadygrad.iteration.norms import Mask, Numbers, Rows
from steadygrad.iteration.plain import finite, highest_in, larger, largest, lowest_in, negated, over, smallest, some, where
from steadygrad.iteration.solver import Forecast
from steadygrad.solution import Status

VANISHING = 0.1
"""A leaf that has shrunk to less than this of the largest that it has been may be on its way to zero."""
GROWN, STAYS = 10.0, 0.1
"""An iterate that has grown by more than the first of these factors, while its residual stays above the second of the greatest,
runs away: relative to the iterate any residual becomes small. A search that settles has a residual far below its greatest."""
GREW = 2.0
"""A residual at the end that exceeds all of the first half by this factor grows, however slowly: more than its ups and downs."""

_THE_ONLY_ONE: Mask = numpy.array([True])
_NONE = numpy.arange(0)

GOES_ON, CONVERGED, DIVERGED, NONFINITE, STAGNATED = range(5)
_STATUS = [Status.MAX_STEPS, Status.CONVERGED, Status.DIVERGED, Status.NONFINITE, Status.STAGNATED]


class Judge:
    """Follows the residuals of the problems that are open: which go on, how the others ended, what they still need.

    What is noted at a look is a float for a single problem of one leaf, else an array with a row an open problem.
    """

    def __init__(self, goal: Goal, problems: int) -> None:
        self.goal = goal
        self.alone = problems == 1 and len(goal.sizes) == 1
        self.open = numpy.arange(problems)
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
        self.total: Any = math.inf
        """The residual norms at the last look."""
        self.history = ResidualHistory()
        self._tolerance = goal.negligible if goal.rtol is None else goal.rtol
        self._scale: Any = float(self.scale[0, 0]) if self.alone else self.scale
        self._size: Any = 0.0
        self._largest: Any = 0.0
        """The largest that each leaf has been, but for excursions: an accelerated step may lead to 1e5 and back, and residuals of
        1e-3 would pass for rounding ever after."""
        self._began: Any = 0.0

    @property
    def statuses(self) -> list[Status]:
        return [_STATUS[code] for code in self.code.tolist()]

    # What a look sees.

    def look(self, step: int, residual: Any, size: Any, reach: Callable[[], Numbers] | None = None) -> bool:
        """Take note of residuals and sizes, (present problems, leaves) or floats; whether some problem may end by them.

        `reach` tells how large each leaf becomes where the state changes by its own size.
        """
        excess: Any
        if self.alone:
            excess, relative = self._of_one(residual, size)
        else:
            excess, relative = self._of_many(residual[self.places], size[self.places], reach)
        if not self.trace:
            self.first[:] = self.total  # of all problems, since all are open
            if self.goal.scale is None:
                self._began = self._size if self.alone else _whole(self._size)
        self.history.note(step, self.total, excess)
        self.trace.append((step, relative))
        goal, least, high = self.goal, excess, self.total
        if not self.alone:
            least, high = lowest_in(excess), highest_in(high)
        if step >= goal.limit or not least > 1 or not math.isfinite(high) or math.isnan(relative):
            return True
        return goal.rtol is not None and (high > goal.growth * self.history.lowest or self.history.stagnates())

    def _of_one(self, residual: float, size: float) -> tuple[float, float]:
        goal = self.goal
        if goal.scale is None:
            if not self.trace or residual <= self.first[0]:
                self._largest = max(self._largest, size)
            self._size, self._scale = size, max(size, goal.rounding * self._largest)
        scale, self.total = self._scale, residual
        allowed = scale * self._tolerance + goal.atol
        if allowed and scale:
            return residual / allowed, residual / scale
        return over(residual, allowed), over(residual, scale)

    def _of_many(self, residual: Numbers, size: Numbers, reach: Callable[[], Numbers] | None) -> tuple[Numbers, float]:
        goal, total = self.goal, _whole(residual)
        if goal.scale is None:
            near = True if not self.trace else (total <= self.first[self.open])[:, None]
            self._largest = numpy.where(near, numpy.fmax(self._largest, size), self._largest)
            self._size, self._scale = size, numpy.fmax(size, goal.rounding * self._largest)
        if reach is not None and goal.rtol is not None:
            self._scale = self._with_vanishing_leaves(residual, reach)
        relative = _largest_of(residual / self._scale)
        allowed = self._scale * self._tolerance + goal.atol if goal.atol else None
        excess = relative / self._tolerance if allowed is None else _largest_of(residual / allowed)
        if not total.all():
            relative[total == 0] = excess[total == 0] = 0.0  # also where the scale is zero
        self.total = total
        return excess, highest_in(relative)

    def _with_vanishing_leaves(self, residual: Numbers, reach: Callable[[], Numbers]) -> Numbers:
        """The scale with that of leaves that rest at zero, which have no size of their own: what they can become.

        The momentum of an optimiser is zero where its parameters rest. F is asked for it only where such leaves alone, far
        below what they have been, keep a row from its tolerance.
        """
        goal, size, scale = self.goal, self._size, self._scale
        assert goal.rtol is not None
        missed = residual > goal.rtol * scale + goal.atol
        vanishing = missed & (size < VANISHING * self._largest)
        decisive = vanishing & ~(missed & ~vanishing).any(axis=1, keepdims=True)
        if not decisive.any():
            return scale
        return numpy.where(decisive, numpy.fmax(scale, numpy.fmin(reach()[self.places], _whole(size)[:, None])), scale)

    def forecast(self) -> Forecast:
        """What the open problems still need, at the rate of the later half of their steps."""
        first = float(self.first[0]) if self.alone else self.first[self.open]
        grown = over(self.total, first) if self.alone else highest_in(self.total / first)
        worst, history = self.history.worst, self.history
        return Forecast(history.steps[-1], history.steps_left(), float(grown), math.log(worst) if worst > 0 else -math.inf)

    # How problems end.

    def below(self) -> Any:
        """Which of the open problems are below the tolerance, and not only beside an iterate that has run away."""
        if self.goal.scale is None:
            self.scale[0 if self.alone else self.open] = self._scale
        below = self.history.excess[-1] <= 1
        if self.goal.scale is None and some(below):
            whole = self._size if self.alone else _whole(self._size)
            # In an iterate so large a smaller residual is rounded away.
            visible = larger(self.total, FLOOR * self.goal.rounding * whole)
            below = below & negated((visible > STAYS * largest(self.history.totals)) & (whole > GROWN * self._began))
        return below

    def judge(self, converged: Any, travels: Any) -> Mask | None:
        """Which problems end now, None for none; their ends are noted. `travels` says which are still on their way."""
        goal, step = self.goal, self.history.steps[-1]
        code = self._code(converged, travels)
        ended = (code != GOES_ON) | (step >= goal.limit)
        if goal.rtol is None and goal.negligible > 0:
            ended = ended | converged  # below what counts as a residual at all
        if not some(ended):
            return None
        if self.alone:
            self.code[0], self.ends[0] = code, step
            return _THE_ONLY_ONE
        which = self.open[ended]
        self.code[which], self.ends[which] = code[ended], step
        return ended

    def _code(self, converged: Any, travels: Any) -> Any:
        """How each of the open problems ends, were it to end now."""
        goal, history, total = self.goal, self.history, self.total
        step = history.steps[-1]
        code: Any = GOES_ON
        if goal.rtol is not None:
            if step > PATIENCE:
                code = where(history.stagnant() & negated(travels), STAGNATED, code)
            code = where(total > goal.growth * smallest(history.totals), DIVERGED, code)
        if step >= goal.limit:
            early = [entry for at, entry in zip(history.steps, history.totals, strict=True) if 2 * at <= goal.limit]
            if early:
                highest = largest(early)
                code = where((code == GOES_ON) & (total > GREW * highest) & (highest > 0), DIVERGED, code)
        if goal.rtol is not None:
            code = where(converged, CONVERGED, code)
        scale = self._scale if self.alone else self._scale.sum(axis=1)
        return where(finite(total) & finite(scale), code, NONFINITE)

    def forget(self, ended: Mask) -> None:
        """These have ended: nothing more is noted of them."""
        if self.alone:
            self.open = _NONE
            return
        stay = ~ended
        self.open = self.open[stay]
        if not len(self.open):
            return
        self.places = (numpy.arange(len(ended)) if isinstance(self.places, slice) else self.places)[stay]
        self.history.only(stay)
        self._scale, self.total = self._scale[stay], self.total[stay]
        if self.goal.scale is None:
            self._size, self._largest, self._began = self._size[stay], self._largest[stay], self._began[stay]

    def only_open_are_present(self) -> None:
        """The others have been left out of the state."""
        self.places = slice(None)


def _whole(size: Numbers) -> Numbers:
    """The norm of all leaves together."""
    return size[:, 0] if size.shape[1] == 1 else numpy.sqrt(numpy.square(size).sum(axis=1))


def _largest_of(leaves: Numbers) -> Numbers:
    return leaves[:, 0] if leaves.shape[1] == 1 else leaves.max(axis=1)
