"""The loop behind every solver: step until the next look, look, and so on until every problem has ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from steadygrad.iteration.judge import Goal
from steadygrad.iteration.norms import Numbers, Rows
from steadygrad.iteration.solver import Forecast, Iteration
from steadygrad.solution import Status

LONG = 3
"""Leaps between two looks of a compiled problem where no tolerance waits for them."""


@dataclass
class Ended:
    """Where an iteration ended, a row a problem."""

    value: Tensor
    status: list[Status]
    steps: int
    residuals: list[tuple[int, float]]
    """(step, the largest relative residual of all open problems)."""
    first: Numbers
    """The norms of the first residual."""
    norms: Numbers
    """The norms of the residual at what is kept."""
    gain: Numbers
    """Estimates of ‖error‖ / ‖residual‖ of the rows that were left out."""
    distance: Numbers
    """Estimates of ‖error‖ / ‖iterate‖, where the goal asks for them."""
    scale: Numbers
    """(problems, leaves): what residuals are relative to."""
    iterates: dict[int, Tensor]
    """The iterates at the steps asked for."""
    trail: list[Any]
    """The last states, of the rows that were present."""
    rows: Rows
    """The rows that were present to the end."""
    ends: Any = None
    """The step at which each problem ended, whole numbers; None for all at the last."""

    @property
    def divided(self) -> bool:
        """Whether rows were left out."""
        return not isinstance(self.rows, slice)


class Run(ABC):
    """One run of a solver: the present state and how it goes on. What a look is depends on how many problems there are."""

    def __init__(self, solver: Iteration, problem: Any, start: Tensor, goal: Goal, wanted: frozenset[int]) -> None:
        self.solver, self.problem, self.goal, self.wanted = solver, problem, goal, wanted
        self.state = solver.init(problem, start)
        self.step = 0
        self.trail: deque[Any] = deque([self.state], maxlen=goal.trail)
        self.iterates: dict[int, Tensor] = {}
        self._leap = 0
        self._turns = type(solver).turn is not Iteration.turn and goal.rtol is not None

    @abstractmethod
    def look(self) -> bool:
        """Judge the present state; whether every problem has ended."""

    @abstractmethod
    def steps_left(self) -> float:
        """Steps until half of the open problems reach their tolerance, at the rate of late; infinite where none can be told."""

    @abstractmethod
    def forecast(self) -> Forecast:
        """What the last look tells of the problems that are open."""

    @abstractmethod
    def ended(self) -> Ended:
        """Where the run ended."""

    @abstractmethod
    def wanted_now(self, value: Tensor) -> Tensor:
        """The iterates of all problems at a step that is wanted."""

    def run(self) -> Ended:
        """Step and look until everything has ended."""
        due = 0 if self.solver.progress(self.state) is not None else 1
        while True:
            self._advance(min(self._whole_leaps(due), self.goal.limit))
            if self.look():
                return self.ended()
            if self._turns:
                self.state = self.solver.turn(self.problem, self.state, self.forecast())
            due = self.goal.due(self.step, self.steps_left())

    def _advance(self, due: int) -> None:
        solver, problem, state, trail = self.solver, self.problem, self.state, self.trail
        if self._leap and due > self.step:
            states = solver.several(problem, state, due - self.step)
            trail.extend(states)
            state, self.step = states[-1], due
        while self.step < due:
            state = solver.step(problem, state)
            trail.append(state)
            self.step += 1
            if self.step in self.wanted:
                self.iterates[self.step] = self.wanted_now(solver.value(state))
        self.state = state

    def _whole_leaps(self, due: int) -> int:
        """The next look, put off to a whole number of leaps where a compiled problem takes several steps at once."""
        self._leap = 0 if self.wanted else self.solver.leap(self.problem, self.state)
        if self._leap <= 1 or due <= self.step:
            return due
        leap = LONG * self._leap if self.goal.rtol is None else self._leap
        return self.step + max(leap, (due - self.step) // leap * leap)
