"""What all adjoint solvers share: stop on the recurrence residual, confirm by the true one, certify, count."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import norms
from steadygrad.jacobian import Linear
from steadygrad.linear.error import ErrorEstimate, Extrapolated, Known, from_gain
from steadygrad.method import Method, check_count
from steadygrad.solution import Status
from steadygrad.watch import Iterate, Watch

TRUSTED_ERROR = 1e-2
"""A solve whose error estimate exceeds this is not called converged, however small its residual."""
TRAIL = 6
"""Residual vectors kept for the estimate of the error: more hardly help, and each is a state in memory."""


@dataclass
class LinearSolution:
    """z with its certificate, a row a problem."""

    z: Tensor
    status: list[Status]
    residual: list[float]
    """‖b − (I − Jᵀ)z‖ / ‖b‖, the true one."""
    error: ErrorEstimate
    unfinished: list[int] = field(default_factory=list[int])
    """The few rows that were left when the rest had ended, if that was asked for."""


class AdjointSolver(Method, ABC):
    """A method for (I − Jᵀ) z = b."""

    @property
    @abstractmethod
    def counts(self) -> bool:
        """Whether an exact number of steps was asked for."""

    @property
    def scale_free(self) -> bool:
        """Whether b may be scaled: not where an absolute tolerance was given."""
        return True

    @property
    def biased(self) -> bool:
        """Whether the solver is asked for something else than the solution, so that the residual cannot vanish."""
        return False

    @abstractmethod
    def watch(self, b: Tensor) -> Watch:
        """How this solver stops on b."""

    @abstractmethod
    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        """Yield iterates from z on."""

    def solve(self, jacobian: Linear, b: Tensor, z: Tensor | None = None, few: int = 0) -> LinearSolution:
        """Solve (I − Jᵀ) z = b for every row of b, from z or from zero. b = 0 gives z = 0.

        With `few`, stop when no more rows than that are left, for the caller to go on with these alone.
        """
        if not b.any():
            rows = b.shape[0]
            return LinearSolution(torch.zeros_like(b), [Status.CONVERGED] * rows, [0.0] * rows, Known([0.0] * rows))
        scale = b.abs().amax(dim=1, keepdim=True)
        scale = torch.where((scale > 0) & scale.isfinite(), scale, torch.ones_like(scale))
        if self.scale_free and not (scale.min() > 1e-6 and scale.max() < 1e6):
            # Squares of very small or large cotangents would leave the range of the dtype; the equation is linear.
            solved = self.solve(jacobian, b / scale, None if z is None else z / scale, few)
            return replace(solved, z=solved.z * scale)
        start = torch.zeros_like(b) if z is None else torch.where(b.any(dim=1, keepdim=True), z, torch.zeros_like(z))
        return certified(self, self.iterates(jacobian, b, start), jacobian, b, few)


@dataclass(frozen=True, repr=False)
class LinearSolver(AdjointSolver):
    """An iteration for (I − Jᵀ) z = b: exactly `steps` of it, or at most `max_steps` until ‖r‖ ≤ rtol·‖b‖.

    `rtol=None` means 1e-5 in float32 and 1e-10 in float64.
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
        if self.rtol is not None and not (0 < self.rtol < 1):
            raise ValueError(f"rtol must lie between 0 and 1; got {self.rtol}. For an exact count give steps.")

    @property
    def counts(self) -> bool:
        return self.steps is not None

    def watch(self, b: Tensor) -> Watch:
        limit = (self.max_steps if self.steps is None else self.steps) + 1  # the start is an iterate too
        return watch_adjoint(b, limit, None if self.counts else self.rtol or default_rtol(b.dtype))


def default_rtol(dtype: torch.dtype) -> float:
    """What `rtol=None` means."""
    return {torch.float64: 1e-10, torch.float32: 1e-5}.get(dtype, 1e-2)


def watch_adjoint(b: Tensor, limit: int, rtol: float | None, atol: float = 0.0) -> Watch:
    """A watch on residuals relative to ‖b‖."""
    size = norms(b)
    # Terms below eps²·‖b‖ change nothing but fall into denormals, where a CPU is 25 times slower.
    negligible = torch.finfo(b.dtype).eps ** 2
    return Watch(lambda _: size, limit, rtol, atol, keep_best=rtol is not None, negligible=negligible, unit=0.0, trail=TRAIL)


def certified(solver: AdjointSolver, iterates: Iterator[Iterate], jacobian: Linear, b: Tensor, few: int = 0) -> LinearSolution:
    """Run the iteration, then spend one product on the true residual of what it kept."""
    watch = solver.watch(b)
    size = norms(b)
    rows = range(len(size))
    asked = watch.rtol
    watch.few = few if asked is not None else 0
    last, kept, z, r, residual = _confirm(watch, iterates, jacobian, b)
    unfinished = list(watch.open) if watch.step < watch.limit else []
    watch.few = 0
    if asked is not None and not solver.biased:
        tolerance = [asked + (watch.atol / s if s else 0.0) for s in size]
        unconfirmed = [i for i in rows if watch.status[i] is Status.CONVERGED and residual[i] > tolerance[i]]
        for i in unconfirmed:
            watch.reopen(i, 0.5 * asked * tolerance[i] / residual[i])
        if unconfirmed:  # start afresh from the true residual
            watch.hold(unfinished)
            watch.trail.clear()
            iterates = solver.iterates(jacobian, b, z)
            last, kept, z, r, residual = _confirm(watch, iterates, jacobian, b)
            for i in unconfirmed:
                watch.status[i] = Status.CONVERGED if residual[i] <= tolerance[i] else Status.STAGNATED
    error = Extrapolated.of(list(watch.trail), (z, r), last) if kept.gain is None else from_gain(kept.gain(), r, z)
    if asked is not None and Status.STAGNATED in watch.status:
        for i in _as_good_as_rounding_allows(asked, z, size, residual, error):
            watch.status[i] = Status.CONVERGED if watch.status[i] is Status.STAGNATED else watch.status[i]
    first = [n / s if s else 0.0 for n, s in zip(watch.first, size, strict=True)]
    wrong = [False] * len(size)
    if asked is not None:
        wrong = [a or b for a, b in zip(error.exceeds(TRUSTED_ERROR), beyond_rounding(z, size), strict=True)]
    status = [_judged(watch.status[i], asked is None, first[i], residual[i], wrong[i]) for i in rows]
    return LinearSolution(z, status, residual, error, unfinished)


def beyond_rounding(z: Tensor, size: list[float]) -> list[bool]:
    """Where z is so much larger than b that the rounding of J alone, a few eps in I − J, moves it by more than is trusted."""
    eps = 8 * torch.finfo(z.dtype).eps
    return [eps * n > TRUSTED_ERROR * s for n, s in zip(norms(z), size, strict=True)]


def _as_good_as_rounding_allows(
    asked: float, z: Tensor, size: list[float], residual: list[float], error: ErrorEstimate
) -> list[int]:
    """Rows whose residual is at the floor that ‖z‖ ≫ ‖b‖ sets, and whose error is as small as the residual was to be."""
    rounding = 4 * torch.finfo(z.dtype).eps
    rows = zip(norms(z), size, residual, error.values(), strict=True)
    return [i for i, (n, s, r, e) in enumerate(rows) if s and r <= min(rounding * n / s, 100 * asked) and e <= asked]


def _confirm(
    watch: Watch, iterates: Iterator[Iterate], jacobian: Linear, b: Tensor
) -> tuple[bool, Iterate, Tensor, Tensor, list[float]]:
    kept = watch.follow(iterates)
    z = kept.formed()
    r = b - z + jacobian.vjp(z)
    return kept is watch.last, kept, z, r, [n / s if s else 0.0 for n, s in zip(norms(r), norms(b), strict=True)]


def _judged(status: Status, counted: bool, first: float, residual: float, wrong: bool) -> Status:
    if not math.isfinite(residual):
        return Status.NONFINITE
    if counted:
        return Status.DIVERGED if residual > first else Status.MAX_STEPS
    if status is Status.CONVERGED and wrong:
        return Status.STAGNATED
    return status
