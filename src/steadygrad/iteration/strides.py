"""Several steps of a compiled problem at once: how many of them, and what the problem has measured on the way."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadygrad.iteration.goal import FEW, FEW_CHEAP, FEW_OF_MANY, Goal
from steadygrad.iteration.judge import Judge
from steadygrad.iteration.norms import norms_of_one, within_range
from steadygrad.iteration.solver import Iteration
from steadygrad.state.shards import columns_of_all

FURTHER = 32
"""Steps that a small compiled problem may go ahead of a look, or as many as it has taken: they are cheap, and a look is not."""
SINGLY = 3
"""Steps that are taken one by one rather than in a stride: a graph costs as much as three small steps, whatever it holds."""
LARGE = 2**14
"""Numbers of a state above which a step in a graph takes as long as one that is not."""
LITTLE = 2**13
"""Numbers of a state up to which a look at several rows or leaves takes as long as some steps."""


BARELY = 0.25
"""Steps by which a look is put off where steps are cheap: a guess that is a little too early takes a look and a step more. On 108
networks of ρ = 0.2 to 0.95 that saves one look in twenty for one step in four hundred."""


class Measured(NamedTuple):
    """Norms of the residual and the value at the first state of a stride, at the last but one, and at the last."""

    first: tuple[float, float]
    before: tuple[float, float]
    last: tuple[float, float]

    def told_to(self, judge: Judge, step: int, dtype: torch.dtype) -> list[float] | None:
        """The norms at the last state, which is that of this step; None where they left the range of the dtype.

        At the first look the judge is shown the others too, from which it has the rate.
        """
        usable = within_range((*self.before, *self.last), dtype)
        if not judge.trace and step > 1:
            if within_range(self.first, dtype):
                judge.look(1, *self.first)
            if usable and judge.goal.rtol is not None and step > 2:
                judge.look(step - 1, *self.before)
        return list(self.last) if usable else None


class Strides:
    """Tells the driver of one run how far to go at once."""

    def __init__(self, solver: Iteration, judge: Judge, start: Tensor, possible: bool) -> None:
        self._solver, self._judge, self._possible = solver, judge, possible
        self._goal: Goal = judge.goal
        self._large = start.numel() > LARGE
        columns = columns_of_all(start.shape[1])
        self._turns = turns = type(solver).turn is not Iteration.turn
        seldom = start.shape[0] * columns <= LITTLE and not judge.alone
        self._few = FEW_OF_MANY if seldom else FEW_CHEAP
        if turns:  # to a Krylov space, which in few numbers is soon full
            self._few = min(self._few, max(columns // 4, FEW))
        self._singly = 0
        """The step up to which steps are taken one by one, twice as many as were in a first stride that led away."""
        self.length = 0
        """The number of which strides are multiples; 1 where they are of any number, 0 where there are none."""

    @property
    def compiled(self) -> bool:
        """Whether steps are taken in graphs of certain lengths."""
        return self.length > 1

    def due(self, problem: Any, state: Any, step: int, due: int) -> int:
        """The next look, put off to a whole number of strides.

        Not where the steps beyond would cost more than what a stride saves: a few steps, or any of a large state, are taken one
        by one. Of a count, no more are asked for than whole strides, which leaves the rest to the end.
        """
        self.length = self._solver.at_once(problem, state) if self._possible else 0
        if not self.compiled or due <= step or step < self._singly:
            return due
        if self._goal.rtol is None:
            return step + max((due - step) // self.length, 1) * self.length
        rest = (due - step) % self.length
        few = rest <= SINGLY and (step > 0 or not self._judge.alone)
        return due if self._large or rest == 0 or few else due - rest + self.length

    def next_look(self, state: Any, step: int, left: float) -> int:
        """When to look again with so many steps left to a tolerance: further ahead where steps are cheaper than a look.

        Much further in a small compiled problem; and a few cheap steps of a solver of several phases whose residual rises: it
        bears with that for longer.
        """
        cheap = self._solver.cheap(state)
        if not cheap:
            return self._goal.due(step, left)
        if len(self._judge.trace) == 1 and (self._turns or not self._goal.best):  # of a series that rises, the first is the best
            return self._goal.soonest(step, self._judge.history.worst)
        late = 0.0 if self._turns else BARELY
        due = self._goal.due(step, left + late, self._few)
        if self._turns and step > 1 and not math.isfinite(left):
            due = max(due, min(step + FEW, self._goal.limit))
        if not self.compiled or self._large or step < max(self._singly, self.length) or not math.isfinite(left):
            return due
        return max(due, min(step + min(math.ceil(left), max(FURTHER, step)), self._goal.limit))

    def puts_off_the_first_look(self, step: int, due: int) -> bool:
        """Whether a small problem to a tolerance is first looked at after a stride."""
        return self.compiled and step == 0 and due > 1 and self._goal.rtol is not None and not self._large

    def measured(self, problem: Any) -> Measured | None:
        """What a single compiled problem has measured in the last stride."""
        return self._solver.measured(problem) if self.compiled and self._judge.alone else None

    def led_away(self, state: Any, measured: Measured | None, due: int) -> bool:
        """Whether the residual was not seen to fall in the first stride: then that way is taken again, step by step."""
        seen = bool(self._judge.trace)
        if measured is None and not seen:
            falls = False
        else:
            first = float(self._judge.first[0]) if measured is None or seen else measured.first[0]
            falls = self._residual(state, measured) < first
        if not falls:
            self._singly = 2 * due
        return not falls

    def _residual(self, state: Any, measured: Measured | None) -> float:
        if measured is not None:
            return measured.last[0]
        residual = self._solver.progress(state)
        return math.inf if residual is None else norms_of_one([residual], self._goal.sizes)[0]
