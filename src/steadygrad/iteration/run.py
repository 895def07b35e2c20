"""The loop behind every solver: step until the next look, look, and so on until every problem has ended."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy
import torch
from torch import Tensor

from steadygrad.failure import SteadyStateError
from steadygrad.iteration.distance import distances
from steadygrad.iteration.error import Errors
from steadygrad.iteration.gain import HELD, gains
from steadygrad.iteration.goal import Goal
from steadygrad.iteration.judge import Judge
from steadygrad.iteration.kept import KeptIterates
from steadygrad.iteration.norms import Mask, Numbers, Rows, leaf_norms, norms_in, norms_of_one
from steadygrad.iteration.plain import finite, larger, over, some, where
from steadygrad.iteration.solver import Iteration, check_state, first_step, several_of
from steadygrad.iteration.strides import Measured, Strides
from steadygrad.solution import Status
from steadygrad.state.shards import columns_of_all, current

WORTH = 2**15
"""Numbers times steps that leaving out what has ended must save: F is made anew for the others, and compared, which takes as
long as so many tanh and small matrix products (0.3 ms at 8 ns a number)."""
REMADE = 2
"""Steps of all that are present that leaving out must save besides: they are evaluated once more, and states are copied."""
FALLS = 0.5
"""The share of the gain, distance over residual, at the look before that is left at least, by the estimates of a solver that does
not fall evenly."""
SPAN = 25
"""Steps over which an iterate is seen to travel."""
AHEAD = 0.25
"""An iterate that is this share of its steps, laid end to end, away from where it was, travels; one in a cycle is not."""
BESIDES = 8
"""Vectors that a state may hold besides two of each that is remembered: earlier states of accelerated solvers, and the value."""


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
    recent: list[Any]
    """The last states, of the rows that were present."""
    rows: Rows
    """The rows that were present to the end."""
    ends: Any
    """The step at which each problem ended, whole numbers."""
    errors: Errors
    """The distances, of which those that nobody waits for are worked out when somebody asks."""

    @property
    def divided(self) -> bool:
        """Whether rows were left out."""
        return not isinstance(self.rows, slice)


def distance_of_one(solver: Iteration, recent: list[Any], judge: Judge, goal: Goal) -> float:
    """How far a single problem is from its solution, by what was seen of it."""
    return distances(solver, recent, judge.total, float(judge.scale[0, 0]), judge.history.rate(), goal)


class Run:
    """One run of a solver: the present state and how it goes on.

    Problems that have ended are frozen, or left out where the problem can be had without them and that pays.
    """

    def __init__(self, solver: Iteration, problem: Any, start: Tensor, goal: Goal, divide: bool, wanted: frozenset[int]) -> None:
        problems = start.shape[0]
        self.solver, self.problem, self.goal, self.wanted = solver, problem, goal, wanted
        self.state = solver.init(problem, start)
        self.step = 0
        self.recent: deque[Any] = deque([solver.keep_for_residual(self.state)], maxlen=goal.remembered)
        self.iterates: dict[int, Tensor] = {}
        self.divide = divide and problems > 1
        if problems > 1:
            check_state(solver, self.state, problems)
        self.judge = Judge(goal, problems)
        self.kept = KeptIterates(solver, self.judge, problems)
        self.gain: Numbers = numpy.zeros(problems)
        self.distance: Numbers = numpy.empty(problems)
        self.distance.fill(math.inf)
        self._estimated_at: Numbers = self.distance.copy()
        """The norms of the residuals at which these distances were estimated."""
        self._anchor: tuple[int, Tensor] | None = None
        self._strides = Strides(solver, self.judge, start, possible=not wanted)
        self._measured: Measured | None = None
        """What a problem has measured itself on the way to the present state."""
        self._turns = type(solver).turn is not Iteration.turn and goal.rtol is not None
        self._numbers = columns_of_all(start.shape[1])
        self._shape, self._dtype = start.shape, start.dtype
        self._takes_several = type(solver).several is not Iteration.several
        little = self.judge.alone and start.numel() * (2 * goal.remembered + BESIDES) < HELD and current() is None
        self._later = goal.rtol is None and goal.trusted is not None and little and not torch.is_grad_enabled()
        """Whether nobody waits for the distance, and little is held until somebody asks."""

    def run(self) -> Ended:
        """Step and look until everything has ended."""
        if self.judge.alone and not self._turns:
            return self._run()
        with numpy.errstate(all="ignore"):  # what is not finite is judged so, and not warned of
            return self._run()

    def _run(self) -> Ended:
        solver = self.solver
        due = self.goal.first_look(known=solver.progress(self.state) is not None)
        while True:
            self._advance(min(self._strides.due(self.problem, self.state, self.step, due), self.goal.limit))
            if self._look():
                return self._ended()
            if self._turns:
                self.state = solver.turn(self.problem, self.state, self.judge.forecast())
            due = self._due()

    def _advance(self, due: int) -> None:
        solver, problem, recent, strides = self.solver, self.problem, self.recent, self._strides
        self._measured = None
        if strides.length and due > self.step:
            begun = self.state if strides.puts_off_the_first_look(self.step, due) else None
            states = solver.several(problem, self._handed_over(), due - self.step)
            recent.extend(map(solver.keep_for_residual, states))
            self.state, self.step, self._measured = states[-1], due, strides.measured(problem)
            if begun is not None and strides.led_away(self.state, self._measured, due):
                recent.clear()
                recent.append(solver.keep_for_residual(begun))
                self.state, self.step, self._measured, due = begun, 0, None, 1
        while self.step < due:
            if self.step or self._takes_several:
                state = self.state = solver.step(problem, self.state)
            else:
                state = self.state = first_step(solver, problem, self.state, self._shape, self._dtype)
            recent.append(solver.keep_for_residual(state))
            self.step += 1
            if self.step in self.wanted:
                self.iterates[self.step] = self.kept.with_open(solver.value(state))

    def _handed_over(self) -> Any:
        """The present state, for a solver that takes several steps from it: nobody else holds on to what it then drops."""
        state, self.state = self.state, None
        if self.recent.maxlen == 1:
            self.recent.clear()
        return state

    def _look(self) -> bool:
        """Judge the present state; whether every problem has ended."""
        solver, goal, judge = self.solver, self.goal, self.judge
        value = solver.vector(self.state) if goal.scale is None else None
        measured = self._norms(value)
        ended: Mask | None = None
        if judge.look(self.step, measured[0], measured[-1], None if judge.alone else self._reach(value)):
            ended = self._judged(measured[0], self._travels(value, measured[0]))
        if value is not None and goal.rtol is not None and (self._anchor is None or self.step - self._anchor[0] >= SPAN):
            self._anchor = (self.step, value.detach())
        if goal.best or ended is not None:  # of problems that go on, the last state is kept: that of a later look
            self.kept.note(self.step, self.state, ended)
        if ended is None:
            return False
        judge.forget(ended)
        if not len(judge.open):
            return True
        if self.divide:
            self._leave_out()
        return False

    def _norms(self, value: Tensor | None) -> list[Any]:
        """The norms of the residual and, where it is given, of the value of the present state."""
        solver, goal, judge = self.solver, self.goal, self.judge
        if self._measured is not None:
            known = self._measured.told_to(judge, self.step, self._dtype)
            if known is not None:
                return known
        residual = solver.progress(self.state)
        if residual is None:
            raise SteadyStateError(
                f"{solver!r} has no residual after {self.step} steps; residual(state) may be None before the first."
            )
        if residual is goal.scaled_by:
            return [float(judge.scale[0, 0]) if judge.alone else judge.scale]
        vectors = [residual] if value is None else [residual, value]
        return norms_of_one(vectors, goal.sizes) if judge.alone else leaf_norms(vectors, goal.sizes)

    def _judged(self, left: Any, travels: Any) -> Mask | None:
        """Which of the open problems end now; None for none."""
        judge, goal = self.judge, self.goal
        converged = judge.below()
        if goal.trusted is not None and not self._later and (self.step == goal.limit or some(converged)):
            found = self._distance(left)
            converged = converged & (found <= goal.trusted)
            which: Any = 0 if judge.alone else judge.open
            self.distance[which], self._estimated_at[which] = found, judge.total
        return judge.judge(converged, travels)

    def _distance(self, left: Any) -> Any:
        """How far the open problems are from their solutions, by the estimates."""
        judge = self.judge
        if judge.alone:
            found = distance_of_one(self.solver, list(self.recent), judge, self.goal)
            return self._steadied(found, 0)
        rates = numpy.ones((len(left), 1))
        rates[judge.places, 0] = judge.history.rate()
        found = distances(self.solver, list(self.recent), left, judge.scale[self.kept.rows], rates, self.goal)
        return self._steadied(found.max(axis=1)[judge.places], judge.open)

    def _steadied(self, found: Any, which: Any) -> Any:
        """Distances of these problems by an accelerated solver, which does not fall evenly: no gain is less than a part of that
        at the look before.

        A search that looks until an estimate is small enough would else end at the one that happens to be low.
        """
        if self.goal.remembered <= 2:
            return found
        before, at = self.distance[which], self._estimated_at[which]
        if self.judge.alone:
            before, at = float(before), float(at)
        before = before * over(self.judge.total, at)
        return where((found > 0) & finite(before), larger(found, FALLS * before), found)

    def _due(self) -> int:
        """When to look again: when all will have ended, or half of them, if it pays to leave these out."""
        if self.goal.rtol is None:
            return self.goal.due(self.step, math.inf if self.goal.scale is None else self.judge.history.steps_left())
        left = self.judge.history.steps_left()
        half, expected = len(self.judge.open) // 2, self._expected(left)
        if self.divide and self._pays(half, expected):  # at best
            sooner = self.judge.history.steps_left_of_half()
            left = sooner if self._pays(half, expected - sooner) else left
        return self._strides.next_look(self.state, self.step, left)

    def _expected(self, left: float) -> float:
        """Steps that are likely to be taken: as many again where nothing can be told, and never more than the limit."""
        return min(left if math.isfinite(left) else self.step, self.goal.limit - self.step)

    def _pays(self, problems: int, steps: float) -> bool:
        """Whether it is worth while to leave out so many problems for so many steps."""
        return self._numbers * (problems * steps - REMADE * self.kept.count) >= WORTH

    def _leave_out(self) -> None:
        """Go on without the rows that have ended, where that pays and the problem can be had for the others."""
        keep = self.kept.present()
        if not self._pays(len(keep) - int(keep.sum()), self._expected(self.judge.history.steps_left())):
            return
        value = self.solver.value(self.state)
        index = torch.from_numpy(numpy.flatnonzero(keep)).to(value.device)
        part = self.problem.part(index, value)
        if part is None:
            self.divide = False
            return
        if self.goal.trusted is None:  # the gains of those, while the states that tell them are there
            found = gains(self.solver, list(self.recent)).values()[0]
            self.gain[self.kept.rows] = numpy.where(keep, self.gain[self.kept.rows], found)
        self.kept.leave_out(keep, index, value)
        self.state = several_of(self.state, index)
        self.problem = part
        for _ in range(len(self.recent)):
            self.recent.append(several_of(self.recent.popleft(), index))
        if self._anchor is not None:
            self._anchor = (self._anchor[0], self._anchor[1][index])
        self.judge.only_open_are_present()

    def _reach(self, value: Tensor | None) -> Callable[[], Numbers] | None:
        """How to find out how large the leaves become where the state changes by its own size; None for a single leaf."""
        goal = self.goal
        if value is None or goal.reach is None or len(goal.sizes) == 1:
            return None
        reach = goal.reach
        return lambda: leaf_norms([reach(self.problem, value.detach())], goal.sizes)[0]

    def _travels(self, value: Tensor | None, left: Any) -> Any:
        """Which problems whose residual has long been flat move on rather than to and fro; False where nobody needs to know."""
        if value is None or self._anchor is None or self.goal.rtol is None or not self.judge.history.stagnates():
            return False
        step, before = self._anchor
        moved = norms_in(left, [value.detach() - before], self.goal.sizes)[0]
        found = moved > AHEAD * (self.step - step) * left
        return found if self.judge.alone else found.any(axis=1)[self.judge.places]

    def _ended(self) -> Ended:
        assert self.kept.value is not None, "every row that ends is kept"
        judge, recent = self.judge, list(self.recent)
        statuses = judge.statuses
        if self._later and self.step == self.goal.limit and statuses[0] is not Status.NONFINITE:
            errors = Errors.later(partial(distance_of_one, self.solver, list(recent), judge, self.goal), recent)
        else:
            errors = Errors.known(self.distance.tolist())
        return Ended(
            value=self.kept.value,
            status=statuses,
            steps=self.step,
            residuals=judge.trace,
            first=judge.first,
            norms=self.kept.norms,
            gain=self.gain,
            distance=self.distance,
            scale=judge.scale,
            iterates=self.iterates,
            recent=recent,
            rows=self.kept.rows,
            ends=judge.ends,
            errors=errors,
        )
