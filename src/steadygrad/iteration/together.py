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

WORTH = 2**17
"""Numbers times steps that leaving out what has ended must save: F is made anew for the others, and compared, which takes as
long as so many tanh and small matrix products."""
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
        """Of all problems, the norms of the residual at what is kept."""
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
        converged = judge.look(self.step, left, size, self._reach(value))
        if goal.trusted is not None and (self.step == goal.limit or converged.any()):
            converged &= self._distances(left) <= goal.trusted
        travels = self._travels(value, left) if value is not None and goal.rtol is not None else None
        ended = judge.judge(self.step, converged, travels)
        self._keep(value, ended)
        if ended is None:
            return False
        judge.forget(ended)
        if judge.over:
            return True
        if self.divide:
            self._leave_out()
        return False

    def _distances(self, left: Numbers) -> Numbers:
        """Estimates of the distances of the open problems."""
        judge, rate = self.judge, numpy.ones(len(left))
        rate[judge.places] = judge.rate()
        found = distances(self.solver, list(self.trail), left, judge.scale[self.rows], rate, self.goal)[judge.places]
        self.distance[judge.rows] = found
        return found

    def steps_left(self) -> float:
        return self.judge.steps_left()

    def forecast(self) -> Forecast:
        return self.judge.forecast(self.step)

    def wanted_now(self, value: Tensor) -> Tensor:
        return value if self.kept is None else self._merged(value, self._present(None))

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

    def _keep(self, value: Tensor | None, ended: Mask | None) -> None:
        """Note what is to be returned of the open rows: the iterate of the smallest residual, or the last."""
        total, rows = self.judge.total, self.judge.rows
        norms = self.norms[rows]
        better: Mask | None = None  # all
        if self.goal.best:
            better = (total < norms) & (self.step > 0)
            better = better if ended is None else better | (ended & numpy.isinf(norms))
        if better is None or better.all():
            self.norms[rows] = total
            self.at = self.solver.hold(self.state)
        elif better.any():
            self.norms[rows] = numpy.where(better, total, norms)
            if self.at is not None:
                self._store(self.solver.value(self.at), self._present(None))
            self._store(self.solver.value(self.state), self._present(better))
            self.at = None
        if ended is not None and self.at is not None:
            self._store(self.solver.value(self.at) if value is None else value, self._present(ended))

    def _present(self, mask: Mask | None) -> Mask:
        """Some of the open problems, None for all of them, as a mask of those that are present."""
        count = len(self.judge.ends) if isinstance(self.rows, slice) else len(self.rows)
        present = numpy.zeros(count, dtype=bool)
        present[self.judge.places] = True if mask is None else mask
        return present

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
        keep = self._present(None)
        value = self.solver.value(self.state)
        left = self.judge.forecast(self.step).left
        steps = min(left if math.isfinite(left) else self.step, self.goal.limit - self.step)
        if (len(keep) - keep.sum()) * value.shape[1] * steps < WORTH:
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
        self.rows = numpy.arange(len(self.judge.ends))[self.rows][keep]
        self.judge.only_open_are_present()

    def _estimate(self, mask: Mask) -> None:
        """The gains of some of the present rows, while the states that tell them are there."""
        if self.goal.trusted is None:
            found = gains(self.solver, list(self.trail))()[0]
            self.gain[self.rows] = numpy.where(mask, found, self.gain[self.rows])

    def _travels(self, value: Tensor, left: Numbers) -> Mask | None:
        """Which rows move on rather than to and fro; None where nobody needs to know."""
        travels: Mask | None = None
        if self.anchor is not None and self.judge.stagnates(self.step):
            step, before = self.anchor
            moved = leaf_norms([value - before], self.goal.sizes)[0]
            travels = numpy.asarray((moved > AHEAD * (self.step - step) * left).any(axis=1))[self.judge.places]
        if self.anchor is None or self.step - self.anchor[0] >= SPAN:
            self.anchor = (self.step, value.detach())
        return travels
