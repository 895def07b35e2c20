"""What all adjoint solvers share: their stop, and how b is given to them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import REMEMBERED
from steadygrad.iteration import Iteration
from steadygrad.iteration.error import Errors
from steadygrad.iteration.norms import norms
from steadygrad.linear.certify import certified
from steadygrad.linear.system import LinearSolution
from steadygrad.method import Method, check_count, check_number
from steadygrad.solution import Status
from steadygrad.update.linear_map import Linear

GROWTH = 1e4
"""A residual above its smallest by this factor has diverged; the transients of non-normal maps stay below."""
SAFE = (1e-6, 1e6)
"""Cotangents outside of this are scaled before the solve, since squares of them could leave the range of the dtype."""


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
    def remembered(self) -> int:
        """States to keep for the estimate of the error; one where the solver has an estimate of its own."""
        return 1 if type(self).gain is not Iteration.gain else REMEMBERED

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
        """Whether the residual that the solver holds at this state, its last, is that of its value."""
        return self.exact_residual

    def from_nearby(self, state: Any) -> IterativeSolver:
        """Who goes on from the value at which it ended: the solver itself, unless it would begin with what it has left behind."""
        return self

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
        return certified(self, jacobian, b, z, size)


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
