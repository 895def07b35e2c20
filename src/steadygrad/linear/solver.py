"""What all adjoint solvers share: stop on the residual of the recurrence, confirm by the true one, certify."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import trusted_in
from steadygrad.iteration import Ended, Goal, Iteration, drive
from steadygrad.iteration.error import FLOOR, Errors, gains
from steadygrad.iteration.norms import Numbers, norms
from steadygrad.method import Method, check_count, check_number
from steadygrad.solution import Status
from steadygrad.state.shards import somewhere
from steadygrad.update.jacobian import Linear

TRAIL = 6
"""States kept for the estimate of the error: more hardly help, and each takes memory."""
GROWTH = 1e4
"""A residual above its smallest by this factor has diverged; the transients of non-normal maps stay below."""
SAFE = (1e-6, 1e6)
"""Cotangents outside of this are scaled before the solve, since squares of them could leave the range of the dtype."""
BEYOND = 1e3
"""A residual that a solver holds is the true one to a thousandth where it is so many roundings of z."""
HELD = 8.0
"""And well enough for a certificate where it is so many of them; below, only a product tells what rounding leaves."""
MARGIN = 0.9
"""Recurrences go on to this share of the tolerance: they drift, and a second run for a few per cent costs more than a step."""
FAR_ABOVE = 100.0
"""But a residual so many times its tolerance is not converged, whatever rounding allows."""
NEARLY = 1e-3
"""A residual below this that rounding keeps from falling will do where the estimated error is within the tolerance."""
ROUNDING = 8.0
"""Roundings of J, in units of eps, that a certificate allows for."""


@dataclass(frozen=True)
class System:
    """(I − Jᵀ) z = b, a row a problem: what an adjoint solver is given. `vjp(v)` is Jᵀv and `jvp(v)` is Jv."""

    jacobian: Linear
    b: Tensor

    @property
    def leap(self) -> int:
        """In what numbers several terms of the series can be had at once, by `add_terms`; 0 where they cannot."""
        return getattr(self.jacobian, "leap", 0)

    @property
    def add_terms(self) -> Callable[[Tensor, Tensor, int, int], tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]]:
        """So many times z ← z + v, v ← Jᵀv, at once; and at most so many vectors that were multiplied, with their products."""
        return self.jacobian.add_terms  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]

    def vjp(self, v: Tensor) -> Tensor:
        """Jᵀ v."""
        return self.jacobian.vjp(v)

    def jvp(self, v: Tensor) -> Tensor:
        """J v."""
        return self.jacobian.jvp(v)

    def residual(self, z: Tensor) -> Tensor:
        """b − (I − Jᵀ) z; nothing is multiplied where z is zero."""
        return self.b - z + self.jacobian.vjp(z) if somewhere(bool(z.any())) else self.b

    def __call__(self, z: Tensor) -> Tensor:
        """Jᵀz + b, whose fixed point is the solution: the adjoint equation as a forward solver sees it."""
        return self.jacobian.vjp(z) + self.b if somewhere(bool(z.any())) else self.b

    def part(self, rows: Tensor, value: Tensor) -> System | None:
        """The system of some of the problems; None where J cannot be had for them alone."""
        jacobian = part_of(self.jacobian, rows)
        return None if jacobian is None else System(jacobian, self.b[rows])


def part_of(jacobian: Linear, rows: Tensor) -> Linear | None:
    """J of some of the problems, from a Jacobian that can give it."""
    part: Callable[[Tensor], Linear | None] | None = getattr(jacobian, "part", None)
    return None if part is None else part(rows)


@dataclass
class LinearSolution:
    """z with its certificate, a row a problem."""

    z: Tensor
    status: list[Status]
    residual: list[float]
    """‖b − (I − Jᵀ)z‖ / ‖b‖, the true one."""
    errors: Errors

    @property
    def error(self) -> list[float]:
        """Estimates of ‖z − z*‖ / ‖z*‖."""
        return self.errors.values()


class AdjointSolver(Method, ABC):
    """A method for (I − Jᵀ) z = b."""

    @property
    @abstractmethod
    def counts(self) -> bool:
        """Whether an exact number of steps was asked for."""

    @abstractmethod
    def solve(self, jacobian: Linear, b: Tensor, z: Tensor | None = None) -> LinearSolution:
        """Solve (I − Jᵀ) z = b for every row of b, from z or from zero. b = 0 gives z = 0."""


class IterativeSolver(AdjointSolver, Iteration, ABC):
    """An adjoint solver that the driver runs."""

    @property
    def scale_free(self) -> bool:
        """Whether b may be scaled: not where an absolute tolerance was given."""
        return True

    @property
    def trail(self) -> int:
        """States to keep for the estimate of the error; one where the solver has an estimate of its own."""
        return 1 if type(self).gain is not Iteration.gain else TRAIL

    @property
    def growth(self) -> float:
        """The factor by which a residual may exceed its smallest before the solver is called diverged."""
        return GROWTH

    @property
    def biased(self) -> bool:
        """Whether the solver is asked for something else than the solution, so that the residual cannot vanish."""
        return False

    @property
    def exact_residual(self) -> bool:
        """Whether the residual that the solver holds is that of its value, and not one of a recurrence that may drift."""
        return False

    def exact_at(self, state: Any) -> bool:
        """The same of the state at which it ended, of solvers of which it depends on that."""
        return self.exact_residual

    @abstractmethod
    def tolerance(self, precision: torch.dtype) -> tuple[int, float | None, float]:
        """The limit of steps, rtol (None for a count) and atol."""

    def solve(self, jacobian: Linear, b: Tensor, z: Tensor | None = None) -> LinearSolution:
        """Solve (I − Jᵀ) z = b for every row of b, from z or from zero. b = 0 gives z = 0."""
        rows, size = b.shape[0], norms(b)
        if not any(size):
            return LinearSolution(torch.zeros_like(b), [Status.CONVERGED] * rows, [0.0] * rows, Errors.known([0.0] * rows))
        usable = [s if s > 0 and math.isfinite(s) else 1.0 for s in size]
        if self.scale_free and not (min(usable) > SAFE[0] and max(usable) < SAFE[1]):
            scale = torch.tensor(usable, dtype=torch.float64, device=b.device).to(b).unsqueeze(1)
            solved = self.solve(jacobian, b / scale, None if z is None else z / scale)
            return replace(solved, z=solved.z * scale)
        return _certified(self, System(jacobian, b), z, numpy.array(size))


@dataclass(frozen=True, repr=False)
class LinearSolver(IterativeSolver):
    """An iteration for (I − Jᵀ) z = b: exactly `steps` of it, or at most `max_steps` until ‖r‖ ≤ rtol·‖b‖.

    `rtol=None` means 1e-5 in float32 and 1e-10 in float64, twice the precision of the dtype in half precision.
    """

    steps: int | None = None
    max_steps: int = 500
    rtol: float | None = None

    def __post_init__(self) -> None:
        check_count("max_steps", self.max_steps, least=1)
        if self.steps is not None:
            check_count("steps", self.steps, least=0)
            if self.rtol is not None:
                raise ValueError(f"steps={self.steps} is an exact count, so rtol={self.rtol} would be ignored; give one of them.")
        if self.rtol is not None:
            check_number("rtol", self.rtol)
            if not (0 < self.rtol < 1):
                raise ValueError(f"rtol must lie between 0 and 1; got {self.rtol}. For an exact count give steps.")

    @property
    def counts(self) -> bool:
        return self.steps is not None

    def tolerance(self, precision: torch.dtype) -> tuple[int, float | None, float]:
        if self.steps is not None:
            return self.steps, None, 0.0
        return self.max_steps, max(self.rtol or default_rtol(precision), torch.finfo(precision).eps), 0.0


def default_rtol(precision: torch.dtype) -> float:
    """What `rtol=None` means."""
    return {torch.float64: 1e-10, torch.float32: 1e-5}.get(precision, 2 * torch.finfo(precision).eps)


def precision_of(jacobian: Linear, b: Tensor) -> torch.dtype:
    """The dtype in which J computes, where that is coarser than that of b."""
    return getattr(jacobian, "precision", None) or b.dtype


def _start(b: Tensor, z: Tensor | None, size: Numbers) -> Tensor:
    """Where to begin: at z, and at zero where there is none, or where b is zero, of which these are the norms."""
    if z is None:
        return torch.zeros_like(b)
    asked = torch.from_numpy(size != 0).to(b.device).unsqueeze(1)
    return z if size.all() else torch.where(asked, z, torch.zeros_like(z))


def _certified(solver: IterativeSolver, system: System, start: Tensor | None, size: Numbers) -> LinearSolution:
    """Run the solver, then confirm its residual by a product of its own; where that is larger, go on from there once.

    `size` are the norms of b; a `start` of None is zero.
    """
    b, precision = system.b, precision_of(system.jacobian, system.b)
    eps = torch.finfo(precision).eps
    limit, rtol, atol = solver.tolerance(precision)
    goal = Goal(
        limit=limit,
        rtol=rtol if rtol is None or solver.exact_residual or rtol < BEYOND * eps else MARGIN * rtol,
        atol=atol,
        sizes=(b.shape[1],),
        scale=size[:, None],
        growth=solver.growth,
        best=rtol is not None,
        negligible=torch.finfo(b.dtype).eps ** 2,  # terms below it fall into denormals, where a CPU is 25 times slower
        trail=solver.trail,
    )
    ended = drive(solver, system, _start(b, start, size), goal, divide=rtol is not None)
    residual, r = _true_residual(solver, system, ended, eps)
    if rtol is not None and not solver.biased:
        allowed = rtol * size + atol
        doubtful = [i for i, s in enumerate(ended.status) if s is Status.CONVERGED and residual[i] > allowed[i]]
        if doubtful:
            ended = _again(solver, system, ended, goal, doubtful, float((allowed / residual)[doubtful].min()))
            residual, r = _true_residual(solver, system, ended, eps)
            for i in doubtful:
                ended.status[i] = Status.CONVERGED if residual[i] <= allowed[i] else Status.STAGNATED
    z, length = ended.value, numpy.array(norms(ended.value))
    if ended.divided:
        here = torch.from_numpy(ended.rows).to(b.device)
        found = gains(solver, ended.trail, None if r is None else (z[here], r[here]))
    else:
        found = gains(solver, ended.trail, None if r is None else (z, r))
    errors = Errors(found, ended.rows, ended.gain, residual, length, eps)
    growth = [n / s if s else 0.0 for n, s in zip(length.tolist(), size.tolist(), strict=True)]
    error = [0.0] * len(size)
    if rtol is not None:
        errors.at_least([1.0 if beyond_rounding(g, precision) else 0.0 for g in growth])
        error = errors.values()
    relative = [r / s if s else 0.0 for r, s in zip(residual.tolist(), size.tolist(), strict=True)]
    first = [r / s if s else 0.0 for r, s in zip(ended.first.tolist(), size.tolist(), strict=True)]
    status = [_judged(ended.status[i], rtol, first[i], relative[i], error[i], growth[i], precision) for i in range(len(size))]
    return LinearSolution(z, status, relative, errors)


def _true_residual(solver: IterativeSolver, system: System, ended: Ended, eps: float) -> tuple[Numbers, Tensor | None]:
    """‖b − (I − Jᵀ)z‖ of every row, and that vector, for a product; none is spent where the solver holds it."""
    z = ended.value
    if solver.exact_at(ended.trail[-1]) and not ended.divided:
        least = eps * numpy.array(norms(z))
        if solver.counts or (ended.norms > HELD * least).all():
            return numpy.fmax(ended.norms, least), None
    image = system.vjp(z)  # first, while there is more room
    r = (system.b - z).add_(image)
    return numpy.array(norms(r)), r


def _again(solver: IterativeSolver, system: System, before: Ended, goal: Goal, rows: list[int], share: float) -> Ended:
    """Go on from what was found, to a smaller tolerance: the recurrence had lost touch with the truth in these rows."""
    limit = max(goal.limit - before.steps, 1)
    assert goal.rtol is not None
    smaller = replace(goal, limit=limit, rtol=0.5 * share * goal.rtol)
    ended = drive(solver, system, before.value, smaller)
    mask = torch.zeros(len(before.status), 1, dtype=torch.bool, device=before.value.device)
    mask[rows] = True
    ended.value = torch.where(mask, ended.value, before.value)
    taken = mask[:, 0].cpu().numpy()
    ended.status = [a if t else b for a, b, t in zip(ended.status, before.status, taken, strict=True)]
    ended.norms = numpy.full(len(taken), 0.0)  # to be taken anew
    ended.first = before.first
    return ended


def _judged(
    status: Status, rtol: float | None, first: float, residual: float, error: float, growth: float, precision: torch.dtype
) -> Status:
    """The status of one row. `growth` is ‖z‖ / ‖b‖."""
    if not math.isfinite(residual):
        return Status.NONFINITE
    if rtol is None:
        return Status.DIVERGED if residual > first else Status.MAX_STEPS
    rounded = torch.finfo(precision).eps * max(growth, 1.0)  # what the rounding of z leaves of the residual, and that of J of z
    least = min(max(FLOOR * rounded, NEARLY), FAR_ABOVE * rtol)
    at_floor = residual <= least and error <= max(rtol, ROUNDING * rounded)
    if status is Status.STAGNATED and at_floor:
        status = Status.CONVERGED  # as good as rounding allows where ‖z‖ ≫ ‖b‖, or where large terms of Jᵀz cancel
    if status is Status.CONVERGED and not error <= trusted_in(precision):
        return Status.STAGNATED
    return status


def beyond_rounding(growth: float, precision: torch.dtype) -> bool:
    """Whether ‖z‖ / ‖b‖ is so large that the rounding of J alone, a few eps in I − J, moves z by more than is trusted."""
    return ROUNDING * torch.finfo(precision).eps * growth > 2 * trusted_in(precision)
