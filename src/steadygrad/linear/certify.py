"""Run an adjoint solver and certify what it found: confirm its residual by the true one, estimate the error, judge."""

from __future__ import annotations

import math
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy
import torch
from torch import Tensor

from steadygrad.failure import SteadyStateError
from steadygrad.fixedpoint.solver import trusted_in
from steadygrad.iteration import Ended, Goal, drive
from steadygrad.iteration.error import FLOOR, errors_by
from steadygrad.iteration.gain import Gains, gains
from steadygrad.iteration.norms import norms
from steadygrad.linear.system import LinearSolution, System, precision_of
from steadygrad.solution import Status
from steadygrad.update.linear_map import Linear

if TYPE_CHECKING:
    from steadygrad.linear.solver import IterativeSolver

BEYOND = 1e3
"""A residual that a solver holds is the true one to a thousandth where it is so many roundings of z."""
CONFIRMED = 4.0
"""A residual that a solver holds needs no product to confirm it where it is so many roundings of z; the true one has up to
`UNAVOIDABLE` of them besides. Below, only a product tells what rounding leaves."""
MARGIN = 0.9
"""Recurrences go on to this share of the tolerance: they drift, and a second run for a few per cent costs more than a step."""
AGAIN = 0.5
"""The share of the tolerance of a second run: it begins at the true residual and has little way to go, so it drifts little."""
UNAVOIDABLE = 2.0
"""Roundings of z that the true residual has besides the one that a solver holds, as squares add up: 1.2 to 2.1 of them by GMRES,
BiCGSTAB and LSQR, where I − J is nearly singular. They are no sign of a drift, and a second run leaves 1.0 to 1.6 of them."""
SLIGHTLY = 2.0
"""The most by which the rounding of z may take a residual above its tolerance and leave it CONVERGED; a larger one is judged by
what rounding allows, without a second run if it may pass: that would leave hardly less."""
FAR_ABOVE = 100.0
"""A residual so many times its tolerance is not converged, whatever rounding allows."""
NEARLY = 1e-3
"""A residual below this that rounding keeps from falling will do where the estimated error is within the tolerance."""
SINGLE = 1e-5
"""Where nobody asked for a tolerance, a float64 solve that rounding stops is converged at that of float32, in which F may compute
inside."""
ROUNDING = 8.0
"""Roundings of J, in units of eps, that a certificate allows for."""


class Confirmed(NamedTuple):
    """What a solver has found, with its true residual."""

    ended: Ended
    length: list[float]
    """‖z‖ of every row."""
    residual: list[float]
    """‖b − (I − Jᵀ)z‖ of every row."""
    vector: Tensor | None
    """The residual itself, where a product was spent on it."""

    @classmethod
    def of(cls, solver: IterativeSolver, system: System, ended: Ended, eps: float) -> Confirmed:
        """The residual by a product; none is spent where the solver holds it, above the rounding of z."""
        z, length = ended.value, norms(ended.value)
        if solver.exact_at(ended.recent[-1]) and not ended.divided:
            held = list(zip(ended.norms.tolist(), [eps * n for n in length], strict=True))
            if solver.counts:
                return cls(ended, length, [max(r, low) for r, low in held], None)
            if all(r > CONFIRMED * low for r, low in held):
                return cls(ended, length, [r if r > BEYOND * low else math.hypot(r, UNAVOIDABLE * low) for r, low in held], None)
        image = system.vjp(z)  # first, while there is more room
        vector = (system.b - z).add_(image)
        return cls(ended, length, norms(vector), vector)

    def gains(self, solver: IterativeSolver) -> Gains:
        """By how much the error exceeds the residual, of the rows that were present to the end."""
        ended, end = self.ended, None if self.vector is None else (self.ended.value, self.vector)
        if end is not None and not isinstance(ended.rows, slice):
            here = torch.from_numpy(ended.rows).to(ended.value.device)
            end = (end[0][here], end[1][here])
        found = gains(solver, ended.recent, end)
        if solver.counts:
            return found.for_later()
        failed = [status is not Status.CONVERGED for status in ended.status]
        # What failed keeps its best iterate, which is long past.
        return found.kept_elsewhere(numpy.array(failed)[ended.rows]) if any(failed) else found


def certified(solver: IterativeSolver, jacobian: Linear, b: Tensor, start: Tensor | None, size: list[float]) -> LinearSolution:
    """Run the solver, then confirm its residual by a product of its own; where that is larger, go on from there once.

    `size` are the norms of b; a `start` of None is zero.
    """
    precision = precision_of(jacobian, b)
    eps = torch.finfo(precision).eps
    limit, rtol, atol = solver.tolerance(precision)
    goal = Goal(
        limit=limit,
        rtol=rtol if rtol is None or solver.exact_residual or rtol < BEYOND * eps else MARGIN * rtol,
        atol=atol,
        sizes=(b.shape[1],),
        scale=numpy.array(size)[:, None],
        scaled_by=b,
        growth=solver.growth,
        best=rtol is not None,
        negligible=torch.finfo(b.dtype).eps ** 2,  # terms below it fall into denormals, where a CPU is 25 times slower
        remembered=solver.remembered,
    )
    begin = [_start(b, start, size)]  # handed over, for its memory
    system = System(jacobian, b, weakref.ref(begin[0]) if start is None else None)
    version = None if b.is_inference() else b._version
    found = Confirmed.of(solver, system, drive(solver, system, begin.pop(), goal, divide=rtol is not None), eps)
    if version is not None and b._version != version:
        raise SteadyStateError(
            f"{solver!r} has changed b in place: a step must leave what it was given as it is (r = r − q, not r −= q)."
        )
    if rtol is not None and not solver.biased:
        found = _within(found, solver, system, goal, [rtol * s + atol for s in size], eps)
    ended, relative = found.ended, _over(found.residual, size)
    errors = errors_by(found.gains(solver), ended.rows, ended.gain, found.residual, found.length, eps)
    if rtol is None:
        errors.put_off()
        return LinearSolution(ended.value, list(map(_after_a_count, found.residual, ended.first.tolist())), relative, errors)
    growth = _over(found.length, size)
    errors.at_least(by_rounding(growth, precision))
    error, status = errors.values(), ended.status
    if precision is torch.float64 and getattr(solver, "rtol", rtol) is None:
        status = list(map(_in_single, status, relative, error))
    each = zip(status, relative, error, growth, strict=True)
    return LinearSolution(ended.value, [_judged(*one, rtol, precision) for one in each], relative, errors)


def _within(found: Confirmed, solver: IterativeSolver, system: System, goal: Goal, allowed: list[float], eps: float) -> Confirmed:
    """What was found where no true residual contradicts a solver that said CONVERGED; else it goes on from there, once.

    `allowed` are the norms that a residual may have.
    """
    reachable = [math.hypot(a, UNAVOIDABLE * eps * n) for a, n in zip(allowed, found.length, strict=True)]
    each = enumerate(zip(found.ended.status, found.residual, allowed, reachable, strict=True))
    above = [i for i, (s, r, a, least) in each if s is Status.CONVERGED and r > min(least, SLIGHTLY * a)]
    if not above:
        return found
    doubtful = [i for i in above if found.residual[i] > min(reachable[i], FAR_ABOVE * allowed[i])]
    if doubtful:
        found = Confirmed.of(solver, system, _again(solver, system, found.ended, goal, doubtful), eps)
    status = list(found.ended.status)
    for i in above:
        status[i] = Status.CONVERGED if found.residual[i] <= allowed[i] else Status.STAGNATED
    return found._replace(ended=replace(found.ended, status=status))


def _over(numbers: list[float], size: list[float]) -> list[float]:
    """Norms relative to those of b; 0 where b is zero."""
    return [n / s if s else 0.0 for n, s in zip(numbers, size, strict=True)]


def _again(solver: IterativeSolver, system: System, before: Ended, goal: Goal, rows: list[int]) -> Ended:
    """Go on from what was found, to a smaller tolerance: the recurrence had lost touch with the truth in these rows."""
    limit = max(goal.limit - before.steps, 1)
    assert goal.rtol is not None
    smaller = replace(goal, limit=limit, rtol=AGAIN * goal.rtol)
    ended = drive(solver.from_nearby(before.recent[-1]), system, before.value, smaller)
    taken = numpy.zeros(len(before.status), dtype=bool)
    taken[rows] = True
    mask = torch.from_numpy(taken).to(before.value.device).unsqueeze(1)
    return replace(
        ended,
        value=torch.where(mask, ended.value, before.value),
        status=[a if t else b for a, b, t in zip(ended.status, before.status, taken, strict=True)],
        norms=numpy.zeros(len(taken)),  # to be taken anew
        first=before.first,
    )


def _after_a_count(residual: float, first: float) -> Status:
    """The status of one row of which no tolerance was asked."""
    if not math.isfinite(residual):
        return Status.NONFINITE
    return Status.DIVERGED if residual > first else Status.MAX_STEPS


def _in_single(status: Status, residual: float, error: float) -> Status:
    """The status of a row for which no tolerance was given: stopped by rounding where float32 would be done, it has converged."""
    done = status is Status.STAGNATED and max(residual, error) <= SINGLE
    return Status.CONVERGED if done else status


def _judged(status: Status, residual: float, error: float, growth: float, rtol: float, precision: torch.dtype) -> Status:
    """The status of one row. `growth` is ‖z‖ / ‖b‖."""
    if not math.isfinite(residual):
        return Status.NONFINITE
    if status is Status.STAGNATED:
        # What the rounding of z leaves of the residual, and that of J of z.
        rounded = torch.finfo(precision).eps * max(growth, 1.0)
        least = min(max(FLOOR * rounded, NEARLY), FAR_ABOVE * rtol)
        if residual <= least and error <= max(rtol, ROUNDING * rounded):
            status = Status.CONVERGED  # as good as rounding allows where ‖z‖ ≫ ‖b‖, or where large terms of Jᵀz cancel
    if status is Status.CONVERGED and not error <= trusted_in(precision):
        return Status.STAGNATED
    return status


def by_rounding(growth: list[float], precision: torch.dtype) -> list[float]:
    """The relative errors that the rounding of J alone does to adjoints that have grown, ‖z‖ / ‖b‖, by so much."""
    return [1.0 if beyond_rounding(g, precision) else torch.finfo(precision).eps * g for g in growth]


def beyond_rounding(growth: float, precision: torch.dtype) -> bool:
    """Whether ‖z‖ / ‖b‖ is so large that the rounding of J alone, a few eps in I − J, moves z by more than is trusted."""
    return ROUNDING * torch.finfo(precision).eps * growth > 2 * trusted_in(precision)


def _start(b: Tensor, z: Tensor | None, size: list[float]) -> Tensor:
    """Where to begin: at z, and at zero where there is none, or where b is zero, of which these are the norms."""
    if z is None:
        return torch.zeros_like(b)
    if all(size):
        return z
    asked = torch.tensor([s != 0 for s in size], device=z.device).unsqueeze(1)
    return torch.where(asked, z, torch.zeros_like(z))
