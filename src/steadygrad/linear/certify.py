"""Run an adjoint solver and certify what it found: confirm its residual by the true one, estimate the error, judge."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy
import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import trusted_in
from steadygrad.iteration import Ended, Goal, drive
from steadygrad.iteration.error import FLOOR, errors_by
from steadygrad.iteration.gain import for_later, gains
from steadygrad.iteration.norms import norms
from steadygrad.linear.system import LinearSolution, System, precision_of
from steadygrad.solution import Status
from steadygrad.update.jacobian import Linear

if TYPE_CHECKING:
    from steadygrad.linear.solver import IterativeSolver

BEYOND = 1e3
"""A residual that a solver holds is the true one to a thousandth where it is so many roundings of z."""
HELD = 8.0
"""And well enough for a certificate where it is so many of them; below, only a product tells what rounding leaves."""
MARGIN = 0.9
"""Recurrences go on to this share of the tolerance: they drift, and a second run for a few per cent costs more than a step."""
AGAIN = 0.5
"""The share of the tolerance of a second run: it begins at the true residual and has little way to go, so it drifts little."""
UNAVOIDABLE = 2.0
"""Roundings of z that the true residual has besides the one that a solver holds, as squares add up: 1.2 to 2.1 of them by GMRES,
BiCGSTAB and LSQR, where I − J is nearly singular. They are no sign of a drift, and a second run leaves 1.0 to 1.6 of them."""
SLIGHTLY = 2.0
"""The most by which they may take a residual above its tolerance and leave it CONVERGED; a larger one is judged by what rounding
allows, without a second run if it may pass: that would leave hardly less."""
FAR_ABOVE = 100.0
"""But a residual so many times its tolerance is not converged, whatever rounding allows."""
NEARLY = 1e-3
"""A residual below this that rounding keeps from falling will do where the estimated error is within the tolerance."""
SINGLE = 1e-5
"""Where nobody asked for a tolerance, a float64 solve that rounding stops is converged at that of float32, in which F may compute
inside."""
ROUNDING = 8.0
"""Roundings of J, in units of eps, that a certificate allows for."""


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
    begin = _start(b, start, size)
    system = System(jacobian, b, begin if start is None else None)
    ended = drive(solver, system, begin, goal, divide=rtol is not None)
    del begin  # for its memory
    length = norms(ended.value)
    residual, r = _true_residual(solver, system, ended, length, eps)
    if rtol is not None and not solver.biased:
        allowed = [rtol * s + atol for s in size]
        reachable = [math.hypot(a, UNAVOIDABLE * eps * n) for a, n in zip(allowed, length, strict=True)]
        above = [
            i
            for i, s in enumerate(ended.status)
            if s is Status.CONVERGED and residual[i] > min(reachable[i], SLIGHTLY * allowed[i])
        ]
        doubtful = [i for i in above if residual[i] > min(reachable[i], FAR_ABOVE * allowed[i])]
        if doubtful:
            ended = _again(solver, system, ended, goal, doubtful)
            length = norms(ended.value)
            residual, r = _true_residual(solver, system, ended, length, eps)
        for i in above:
            ended.status[i] = Status.CONVERGED if residual[i] <= allowed[i] else Status.STAGNATED
    z = ended.value
    if ended.divided:
        here = torch.from_numpy(ended.rows).to(b.device)
        found = gains(solver, ended.recent, None if r is None else (z[here], r[here]))
    else:
        found = gains(solver, ended.recent, None if r is None else (z, r))
    errors = errors_by(for_later(found) if rtol is None else found, ended.rows, ended.gain, residual, length, eps)
    relative = _over(residual, size)
    if rtol is None:
        errors.put_off()
        return LinearSolution(z, list(map(_after_a_count, residual, ended.first.tolist())), relative, errors)
    growth = _over(length, size)
    errors.at_least([1.0 if beyond_rounding(g, precision) else eps * g for g in growth])  # J is rounded, and z moves by that
    error, status = errors.values(), ended.status
    if precision is torch.float64 and getattr(solver, "rtol", rtol) is None:
        status = list(map(_in_single, status, relative, error))
    each = zip(status, relative, error, growth, strict=True)
    return LinearSolution(z, [_judged(*one, rtol, precision) for one in each], relative, errors)


def _true_residual(
    solver: IterativeSolver, system: System, ended: Ended, length: list[float], eps: float
) -> tuple[list[float], Tensor | None]:
    """‖b − (I − Jᵀ)z‖ of every row, and that vector, for a product; none is spent where the solver holds it.

    `length` are the norms of z, whose rounding a residual does not fall below.
    """
    z = ended.value
    if solver.exact_at(ended.recent[-1]) and not ended.divided:
        held, least = ended.norms.tolist(), [eps * n for n in length]
        if solver.counts or all(r > HELD * low for r, low in zip(held, least, strict=True)):
            return list(map(max, held, least)), None
    image = system.vjp(z)  # first, while there is more room
    r = (system.b - z).add_(image)
    return norms(r), r


def _over(numbers: list[float], size: list[float]) -> list[float]:
    """Norms relative to those of b; 0 where b is zero."""
    return [n / s if s else 0.0 for n, s in zip(numbers, size, strict=True)]


def _again(solver: IterativeSolver, system: System, before: Ended, goal: Goal, rows: list[int]) -> Ended:
    """Go on from what was found, to a smaller tolerance: the recurrence had lost touch with the truth in these rows."""
    limit = max(goal.limit - before.steps, 1)
    assert goal.rtol is not None
    smaller = replace(goal, limit=limit, rtol=AGAIN * goal.rtol)
    ended = drive(solver.from_nearby(before.recent[-1]), system, before.value, smaller)
    mask = torch.zeros(len(before.status), 1, dtype=torch.bool, device=before.value.device)
    mask[rows] = True
    ended.value = torch.where(mask, ended.value, before.value)
    taken = mask[:, 0].cpu().numpy()
    ended.status = [a if t else b for a, b, t in zip(ended.status, before.status, taken, strict=True)]
    ended.norms = numpy.full(len(taken), 0.0)  # to be taken anew
    ended.first = before.first
    return ended


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
