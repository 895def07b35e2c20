"""The one loop behind every solver, forward and adjoint: step, look when it is due, keep, judge, leave out what has ended."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.error import distances, gains
from steadygrad.iteration.judge import Goal, Judge
from steadygrad.iteration.norms import Mask, Numbers, Rows, leaf_norms
from steadygrad.iteration.solver import Iteration, several_of
from steadygrad.solution import Status

LARGE = 2**15
"""Numbers in a state from which on rows are left out once a quarter has ended; below it once half has: leaving rows out
makes F anew, which small states hardly pay for."""
LEAP = 10
LONG_LEAP = 30
"""Steps that are taken at once by a compiled problem: the lengths of its graphs."""
SPAN = 25
"""Steps over which an iterate is seen to travel."""
AHEAD = 0.25
"""An iterate that is this share of its steps, laid end to end, away from where it was, travels; one in a cycle is not."""


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


def drive(
    solver: Iteration,
    problem: Any,
    start: Tensor,
    goal: Goal,
    divide: bool = False,
    wanted: frozenset[int] = frozenset(),
) -> Ended:
    """Run a solver from a start until every problem has ended; gradients are recorded if they are enabled.

    With `divide` rows that have ended are left out, if `problem.part(rows, value)` gives the problem of the others.
    """
    return _Drive(solver, problem, start, goal, divide, wanted).run()


class _Drive:
    """One run: the present state, what is kept, and the judge."""

    def __init__(self, solver: Iteration, problem: Any, start: Tensor, goal: Goal, divide: bool, wanted: frozenset[int]) -> None:
        problems = start.shape[0]
        self.solver, self.problem, self.goal, self.wanted = solver, problem, goal, wanted
        self.divide = divide and problems > 1
        self.judge = Judge(goal, problems)
        self.state = solver.init(problem, start)
        self.step = 0
        self.rows: Rows = slice(None)
        """The rows that are present, among all."""
        self.trail: deque[Any] = deque([self.state], maxlen=goal.trail)
        self.at: Any = None
        """What is held of the state whose value is to be kept in every open row; None if those are in `kept`."""
        self.kept: Tensor | None = None
        self.norms: Numbers = numpy.full(problems, math.inf)
        self.gain: Numbers = numpy.ones(problems)
        self.distance: Numbers = numpy.full(problems, math.inf)
        self.leaping = False
        """Whether the steps to the next look are taken at once."""
        self.anchor: tuple[int, Tensor] | None = None
        self.iterates: dict[int, Tensor] = {}

    def run(self) -> Ended:
        due = 0 if self.solver.progress(self.state) is not None else 1
        while True:
            self._advance(min(self._leap(due), self.goal.limit))
            if self._look():
                break
            due = self.judge.next_look(self.step, self.rows)
        assert self.kept is not None, "every row that ends is kept"
        return Ended(
            value=self.kept,
            status=self.judge.statuses,
            steps=self.step,
            residuals=self.judge.trace,
            first=self.judge.first,
            norms=self.norms,
            gain=self.gain,
            distance=self.distance,
            scale=self.judge.scale,
            iterates=self.iterates,
            trail=list(self.trail),
            rows=self.rows,
            ends=self.judge.ends,
        )

    def _advance(self, due: int) -> None:
        """Take steps until the next look."""
        solver, problem, state = self.solver, self.problem, self.state
        while self.step < due:
            if self.leaping:
                state = solver.several(problem, state, due - self.step)
                self.step = due
            else:
                state = solver.step(problem, state)
                self.step += 1
            self.trail.append(state)
            if self.step in self.wanted:
                value = solver.value(state)
                self.iterates[self.step] = value if self.kept is None else self._merged(value, self.judge.open)
        self.state = state

    def _leap(self, due: int) -> int:
        """The next look, put off to a whole number of leaps where several steps are taken at once."""
        self.leaping = due > self.step and not self.wanted and self.solver.leaps(self.problem, self.state)
        if not self.leaping:
            return due
        leap = LONG_LEAP if self.goal.rtol is None else LEAP
        return self.step + max(leap, (due - self.step) // leap * leap)

    def _look(self) -> bool:
        """Judge the present state; whether every problem has ended."""
        solver, judge, goal = self.solver, self.judge, self.goal
        residual = solver.progress(self.state)
        assert residual is not None, "the residual is known after the first step"
        value: Tensor | None = None
        if goal.scale is None:
            value = solver.value(self.state)
            left, size = leaf_norms([residual, value], goal.sizes)
        else:
            left = size = leaf_norms([residual], goal.sizes)[0]
        was_open = judge.open[self.rows].copy()
        converged = judge.look(self.step, self.rows, left, size)
        if goal.trusted is not None and (converged.any() or self.step == goal.limit):
            estimate = distances(solver, list(self.trail), left, judge.scale[self.rows], goal)
            self.distance[self.rows] = numpy.where(was_open, estimate, self.distance[self.rows])
            converged &= estimate <= goal.trusted
        travels = self._travels(value, left) if value is not None and goal.rtol is not None else None
        ended = judge.judge(self.step, self.rows, converged, travels)
        self._keep(value, was_open, ended)
        if not judge.open.any():
            return True
        if self.divide and ended.any():
            self._leave_out()
        self.state = self.solver.turn(self.problem, self.state, judge.forecast(self.step, self.rows))
        return False

    def _keep(self, value: Tensor | None, was_open: Mask, ended: Mask) -> None:
        """Note what is to be returned of the open rows: the iterate of the smallest residual, or the last."""
        norms, total = self.norms[self.rows], self.judge.total
        better = was_open if not self.goal.best else was_open & (total < norms) & (self.step > 0)
        better = better | (ended & numpy.isinf(norms))
        self.norms[self.rows] = numpy.where(better, total, norms)
        if (better == was_open).all():
            self.at = self.solver.hold(self.state)
        elif better.any():
            if self.at is not None:
                self._store(self.solver.value(self.at), was_open)
            self._store(self.solver.value(self.state), better)
            self.at = None
        if ended.any() and self.at is not None:
            self._store(self.solver.value(self.at) if value is None else value, ended)

    def _store(self, value: Tensor, mask: Mask) -> None:
        if mask.all() and isinstance(self.rows, slice):
            self.kept = value
        elif isinstance(self.rows, slice):
            self.kept = value if self.kept is None else self._merged(value, mask)
        else:
            assert self.kept is not None, "rows that were left out are kept"
            chosen = torch.from_numpy(numpy.flatnonzero(mask)).to(value.device)
            everywhere = torch.from_numpy(self.rows[mask]).to(value.device)
            self.kept = self.kept.index_copy(0, everywhere, value[chosen])

    def _merged(self, value: Tensor, mask: Mask) -> Tensor:
        """What is kept, with the masked rows of another value; gradients pass."""
        assert self.kept is not None
        mask = mask.copy()  # the graph keeps it, and the judge goes on writing into his own
        return torch.where(torch.from_numpy(mask).to(value.device).unsqueeze(1), value, self.kept)

    def _leave_out(self) -> None:
        """Go on without the rows that have ended, where that pays and the problem can be had for the others."""
        keep = self.judge.open[self.rows]
        value = self.solver.value(self.state)
        most = 0.75 if value.numel() >= LARGE else 0.5
        if keep.sum() > most * len(keep):
            return
        index = torch.from_numpy(numpy.flatnonzero(keep)).to(value.device)
        part = self.problem.part(index, value)
        if part is None:
            self.divide = False
            return
        self._estimate(~keep)
        if self.kept is None:
            self.kept = value
        self.state = several_of(self.state, index)
        self.at = several_of(self.at, index)
        self.problem = part
        self.trail = deque([several_of(state, index) for state in self.trail], maxlen=self.goal.trail)
        if self.anchor is not None:
            self.anchor = (self.anchor[0], self.anchor[1][index])
        self.rows = numpy.arange(len(self.judge.open))[self.rows][keep]
        self.judge.drop(keep)

    def _estimate(self, mask: Mask) -> None:
        """The gains of some of the present rows, while the states that tell them are there."""
        if self.goal.trusted is None:
            found = gains(self.solver, list(self.trail))
            self.gain[self.rows] = numpy.where(mask, found, self.gain[self.rows])

    def _travels(self, value: Tensor, left: Numbers) -> Mask | None:
        """Which rows move on rather than to and fro; None where nobody needs to know."""
        travels = None
        if self.anchor is not None and self.judge.stagnates(self.step, self.rows):
            step, before = self.anchor
            moved = leaf_norms([value - before], self.goal.sizes)[0]
            travels = (moved > AHEAD * (self.step - step) * left).any(axis=1)
        if self.anchor is None or self.step - self.anchor[0] >= SPAN:
            self.anchor = (self.step, value.detach())
        return travels
