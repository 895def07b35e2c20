"""The run of a single problem whose state is one tensor: the rules of `together`, in plain floats, in a tenth of the time."""

from __future__ import annotations

import math
from typing import Any

import numpy
from torch import Tensor

from steadygrad.iteration.error import distance_of_one
from steadygrad.iteration.judge import FAR, GREW, PATIENCE, SHRUNK, Goal, later_half
from steadygrad.iteration.norms import SAFE, leaf_norms, norm_of
from steadygrad.iteration.run import Ended, Run
from steadygrad.iteration.solver import Forecast, Iteration
from steadygrad.iteration.together import AHEAD, SPAN
from steadygrad.solution import Status


class Single(Run):
    """One problem, one residual, one stop."""

    def __init__(self, solver: Iteration, problem: Any, start: Tensor, goal: Goal, wanted: frozenset[int]) -> None:
        super().__init__(solver, problem, start, goal, wanted)
        self._status = Status.MAX_STEPS
        self._trace: list[tuple[int, float]] = []
        self._history: list[tuple[int, float]] = []
        """(step, how many times too large the residual is)."""
        self._first = self._early = self._largest = self._residual = self._greatest = self._began = 0.0
        self._scale = 0.0 if goal.scale is None else float(goal.scale[0, 0])
        self._smallest = self._mark = self._kept_residual = self._distance = math.inf
        self._marked = 0
        self._at: Any = None
        """What is held of the state that is kept."""
        self._anchor: tuple[int, Tensor] | None = None

    def look(self) -> bool:
        goal, step = self.goal, self.step
        progress = self.solver.progress(self.state)
        assert progress is not None, "the residual is known after the first step"
        value = self.solver.value(self.state) if goal.scale is None else None
        self._measure(progress, value)
        self._note()
        below = (self._residual <= self._tolerance() or self._residual == 0) and not self._drifts()
        if goal.trusted is not None and (below or step == goal.limit):
            self._distance = distance_of_one(self.solver, list(self.trail), self._residual, self._scale, self._rate(), goal)
            below = below and self._distance <= goal.trusted
        travels = value is not None and self._travels(value)
        status = self._judged(below, travels)
        negligible = goal.rtol is None and goal.negligible > 0 and below
        ends = status is not None or step >= goal.limit or negligible
        if not goal.best or (step > 0 and self._residual < self._kept_residual) or (ends and self._at is None):
            self._kept_residual, self._at = self._residual, self.solver.hold(self.state)
        self._status = status or Status.MAX_STEPS
        return ends

    def steps_left(self) -> float:
        now, excess = self._history[-1]
        then, earlier = later_half(self._history)
        if excess <= 1:
            return 1.0
        if then == now or not excess < earlier < math.inf:
            return math.inf
        return math.log(excess) * (now - then) / math.log(earlier / excess)

    def _rate(self) -> float:
        """By how much the residual has fallen in a step, of late; 1 where it has not."""
        now, excess = self._history[-1]
        then, earlier = later_half(self._history)
        return (excess / earlier) ** (1 / (now - then)) if then < now and 0 < excess < earlier < math.inf else 1.0

    def _drifts(self) -> bool:
        """Whether the residual is small beside the iterate only because that has grown: it runs away at an even pace."""
        if self.goal.scale is not None or not self._largest > FAR * self._began:
            return False
        # In an iterate so large that it is rounded by more than this, a smaller residual could not be seen.
        visible = max(self._residual, 4 * self.goal.rounding * self._scale)
        return visible > SHRUNK * self._greatest

    def forecast(self) -> Forecast:
        excess = self._history[-1][1]
        grown = self._residual / self._first if self._first else math.inf
        return Forecast(self.step, self.steps_left(), grown, math.log(excess) if excess > 0 else -math.inf)

    def wanted_now(self, value: Tensor) -> Tensor:
        return value

    def ended(self) -> Ended:
        return Ended(
            value=self.solver.value(self._at),
            status=[self._status],
            steps=self.step,
            residuals=self._trace,
            first=numpy.array([self._first]),
            norms=numpy.array([self._kept_residual]),
            gain=numpy.ones(1),
            distance=numpy.array([self._distance]),
            scale=numpy.array([[self._scale]]),
            iterates=self.iterates,
            trail=list(self.trail),
            rows=slice(None),
        )

    def _measure(self, progress: Tensor, value: Tensor | None) -> None:
        """The norms of the residual and, where it is relative to that, of the iterate."""
        low, high = SAFE[progress.dtype]
        self._residual = norm_of(progress)
        if not low < self._residual < high:
            self._residual = float(leaf_norms([progress], self.goal.sizes)[0][0, 0])
        if value is not None:
            size = norm_of(value)
            if not low < size < high:
                size = float(leaf_norms([value], self.goal.sizes)[0][0, 0])
            self._largest = max(self._largest, size)
            self._scale = max(size, self.goal.rounding * self._largest)

    def _tolerance(self) -> float:
        goal = self.goal
        return self._scale * (goal.negligible if goal.rtol is None else goal.rtol) + goal.atol

    def _note(self) -> None:
        residual, tolerance = self._residual, self._tolerance()
        if not self._history:
            self._first, self._began = residual, self._largest
        self._greatest = max(self._greatest, residual)
        excess = residual / tolerance if tolerance > 0 else (math.inf if residual else 0.0)
        self._history.append((self.step, excess))
        relative = residual / self._scale if self._scale > 0 else (math.inf if residual else 0.0)
        self._trace.append((self.step, relative))
        if 2 * self.step <= self.goal.limit and not residual <= self._early:
            self._early = residual
        if residual < self._smallest:
            self._smallest = residual
        if residual < 0.99 * self._mark:
            self._mark, self._marked = residual, self.step

    def _judged(self, below: bool, travels: bool) -> Status | None:
        """How the problem ends now; None where it goes on or was only to be counted."""
        goal, residual = self.goal, self._residual
        if not (math.isfinite(residual) and math.isfinite(self._scale)):
            return Status.NONFINITE
        if goal.rtol is not None and below:
            return Status.CONVERGED
        if self.step >= goal.limit and 0 < GREW * self._early < residual:
            return Status.DIVERGED
        if goal.rtol is None:
            return None
        if residual > goal.growth * self._smallest:
            return Status.DIVERGED
        if self.step - self._marked > PATIENCE and not travels:
            return Status.STAGNATED
        return None

    def _travels(self, value: Tensor) -> bool:
        """Whether an iterate whose residual has long been flat moves on rather than to and fro."""
        travels = False
        if self._anchor is not None and self.step - self._marked > PATIENCE:
            step, before = self._anchor
            travels = norm_of(value.detach() - before) > AHEAD * (self.step - step) * self._residual
        if self._anchor is None or self.step - self._anchor[0] >= SPAN:
            self._anchor = (self.step, value.detach())
        return travels
