"""What looks have seen of the residuals of some problems: how fast they fall, and how long they still need."""

from __future__ import annotations

import math
from typing import Any

import numpy

from steadygrad.iteration.norms import Mask, Numbers
from steadygrad.iteration.plain import highest_in, lowest_in, negated, over, smallest, some, where

PATIENCE = 100
"""Steps without a residual one per cent smaller after which an iteration stagnates."""
BETTER = 0.99
"""What a residual must fall to in that time."""


class ResidualHistory:
    """The residuals of the open problems, look by look: a float for a single problem of one leaf, else an array of all."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.totals: list[Any] = []
        """The norms of the residuals."""
        self.excess: list[Any] = []
        """By what factor each residual is too large."""
        self.lowest = math.inf
        """The smallest norm of all."""
        self._worst: list[float] = []
        """The largest excess."""

    def note(self, step: int, total: Any, excess: Any) -> None:
        """Take note of a look."""
        self.steps.append(step)
        self.totals.append(total)
        self.excess.append(excess)
        if isinstance(excess, float):
            self._worst.append(excess)
            self.lowest = min(self.lowest, total)
            return
        self.lowest = min(self.lowest, lowest_in(total))
        self._worst.append(highest_in(excess))

    @property
    def worst(self) -> float:
        """By what factor the largest residual is too large."""
        return self._worst[-1]

    def steps_left(self) -> float:
        """Steps to the tolerance, of the slowest, at the rate of late; infinite where a residual does not fall."""
        begun = self._begun_to_fall()
        return self._left(begun, self._worst[begun], self._worst[-1])

    def steps_left_of_half(self) -> float:
        """Steps until half of the open problems are at the tolerance, at the rate of late."""
        begun = self._begun_to_fall()
        return self._left(begun, _median(self.excess[begun]), _median(self.excess[-1]))

    def _left(self, begun: int, then: float, now: float) -> float:
        if now <= 1:
            return 0.0
        if not now < then < math.inf:
            return math.inf
        return math.log(now) * (self.steps[-1] - self.steps[begun]) / math.log(then / now)

    def _half_way(self) -> int:
        """The first look in the later half of the steps taken, or the last but one if that is earlier."""
        now, steps = self.steps[-1], self.steps
        found = max(len(steps) - 2, 0)
        while found > 0 and 2 * steps[found - 1] >= now:
            found -= 1
        return found

    def _begun_to_fall(self) -> int:
        """The look of `_half_way`, or a later one at which the residuals peaked.

        A solver that changed its ways at a peak fell by that, and not at its rate. Only for guesses of when to look: of residuals
        that rounding shakes, the way from the last peak says nothing.
        """
        worst, earliest = self._worst, self._half_way()
        found = last = max(len(worst) - 2, 0)
        while found > earliest and worst[found - 1] >= worst[found]:
            found -= 1
        return min(found + 1, last) if found > earliest else found

    def rate(self) -> Any:
        """By how much residuals have fallen in a step, of late; 1 where they have not."""
        then = self._half_way()
        steps = self.steps[-1] - self.steps[then]
        rate = over(self.excess[-1], self.excess[then]) ** (1 / max(steps, 1))
        return where(rate < 1, rate, 1.0)

    def stagnates(self) -> bool:
        """Whether some problem has not improved for long."""
        return self.steps[-1] > PATIENCE and some(self.stagnant())

    def stagnant(self) -> Any:
        """Which problems have not improved for long."""
        before = sum(step <= self.steps[-1] - PATIENCE for step in self.steps)
        if not before:
            return self.totals[-1] != self.totals[-1]  # none
        return negated(smallest(self.totals[before:]) < BETTER * smallest(self.totals[:before]))

    def only(self, stay: Mask) -> None:
        """Forget the other problems."""
        self.totals = list(_table(self.totals)[:, stay])
        self.excess = list(_table(self.excess)[:, stay])
        self.lowest = float(_table(self.totals).min())
        self._worst = [highest_in(excess) for excess in self.excess]


def _median(entries: Numbers) -> float:
    middle = (len(entries) - 1) // 2
    return float(numpy.partition(entries, middle)[middle])


def _table(entries: list[Any]) -> Numbers:
    """What was noted at several looks, (looks, problems)."""
    return numpy.array(entries).reshape(len(entries), -1)
