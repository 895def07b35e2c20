"""The run of many problems, or of a state of several tensors: each row has its own residual and its own stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.error import distances, gains
from steadygrad.iteration.judge import Goal, Judge
from steadygrad.iteration.norms import Mask, Numbers, Rows, leaf_norms
from steadygrad.iteration.run import Ended, Run
from steadygrad.iteration.solver import Forecast, Iteration, several_of
from steadygrad.state.shards import columns_of_all

LARGE = 2**15
"""Numbers in a state from which on rows are left out once a quarter has ended; below it once half has: leaving rows
out makes F anew and compares it, which small states hardly pay for."""
SPAN = 25
"""Steps over which an iterate is seen to travel."""
AHEAD = 0.25
"""An iterate that is this share of its steps, laid end to end, away from where it was, travels; one in a cycle is not."""


class Together(Run):
    """Many problems in one state; those that have ended are frozen, or left out where the problem can be had without them."""

    def __init__(self, solver: Iteration, problem: Any, start: Tensor, goal: Goal, wanted: frozenset[int], divide: bool) -> None:
        super().__init__(solver, problem, start, goal, wanted)
        problems = start.shape[0]
        self.divide = divide and problems > 1
        self.judge = Judge(goal, problems)
        self.rows: Rows = slice(None)
        """The rows that are present, among all."""
        self.at: Any = None
        """What is held of the state whose value is to be kept in every open row; None if those are in `kept`."""
        self.kept: Tensor | None = None
        self.norms: Numbers = numpy.full(problems, math.inf)
        self.gain: Numbers = numpy.ones(problems)
        self.distance: Numbers = numpy.full(problems, math.inf)
        self.anchor: tuple[int, Tensor] | None = None

    def look(self) -> bool:
        with numpy.errstate(all="ignore"):  # what is not finite is judged so, and not warned of
            return self._look()

    def _look(self) -> bool:
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
        converged = judge.look(self.step, self.rows, left, size, self._reach(value))
        if goal.trusted is not None and (converged.any() or self.step == goal.limit):
            estimate = distances(solver, list(self.trail), left, judge.scale[self.rows], judge.rate(self.rows), goal)
            self.distance[self.rows] = numpy.where(was_open, estimate, self.distance[self.rows])
            converged &= estimate <= goal.trusted
        travels = self._travels(value, left) if value is not None and goal.rtol is not None else None
        ended = judge.judge(self.step, self.rows, converged, travels)
        self._keep(value, was_open, ended)
        if not judge.open.any():
            return True
        if self.divide and ended.any():
            self._leave_out()
        return False

    def steps_left(self) -> float:
        return self.judge.steps_left(self.rows)

    def forecast(self) -> Forecast:
        return self.judge.forecast(self.step, self.rows)

    def wanted_now(self, value: Tensor) -> Tensor:
        return value if self.kept is None else self._merged(value, self.judge.open)

    def ended(self) -> Ended:
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

    def _reach(self, value: Tensor | None) -> Callable[[], Numbers] | None:
        """How to find out how large the leaves become where the state changes by its own size; None for a single leaf."""
        goal = self.goal
        if value is None or goal.reach is None or len(goal.sizes) == 1:
            return None
        reach = goal.reach
        return lambda: leaf_norms([reach(self.problem, value.detach())], goal.sizes)[0]

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
        here = torch.from_numpy(mask.copy()).to(value.device)  # the graph keeps it, and the judge goes on writing
        return torch.where(here.unsqueeze(1), value, self.kept)

    def _leave_out(self) -> None:
        """Go on without the rows that have ended, where that pays and the problem can be had for the others."""
        keep = self.judge.open[self.rows]
        value = self.solver.value(self.state)
        most = 0.75 if len(value) * columns_of_all(value.shape[1]) >= LARGE else 0.5
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
        for _ in range(len(self.trail)):
            self.trail.append(several_of(self.trail.popleft(), index))
        if self.anchor is not None:
            self.anchor = (self.anchor[0], self.anchor[1][index])
        self.rows = numpy.arange(len(self.judge.open))[self.rows][keep]
        self.judge.drop(keep)

    def _estimate(self, mask: Mask) -> None:
        """The gains of some of the present rows, while the states that tell them are there."""
        if self.goal.trusted is None:
            found = gains(self.solver, list(self.trail))()[0]
            self.gain[self.rows] = numpy.where(mask, found, self.gain[self.rows])

    def _travels(self, value: Tensor, left: Numbers) -> Mask | None:
        """Which rows move on rather than to and fro; None where nobody needs to know."""
        travels: Mask | None = None
        if self.anchor is not None and self.judge.stagnates(self.step, self.rows):
            step, before = self.anchor
            moved = leaf_norms([value - before], self.goal.sizes)[0]
            travels = numpy.asarray((moved > AHEAD * (self.step - step) * left).any(axis=1))
        if self.anchor is None or self.step - self.anchor[0] >= SPAN:
            self.anchor = (self.step, value.detach())
        return travels
