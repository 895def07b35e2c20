"""The adjoint equation z = Jᵀz + b as a fixed point: original RBP and its accelerated forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadygrad.fixedpoint.picard import Picard
from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.linear.solver import IterativeSolver
from steadygrad.linear.system import System


@dataclass(frozen=True, repr=False)
class Recurrence(IterativeSolver):
    """RBP: z ← Jᵀz + b by a fixed-point method. Liao et al. 2018, Algorithm 1.

    Stops once ‖z_i − z_{i−1}‖ ≤ rtol·‖b‖ + atol; the paper's ε is `atol`. Picard from zero for K+1 steps is Neumann(K).
    """

    method: FixedPointSolver

    @property
    def counts(self) -> bool:
        return self.method.counts

    @property
    def scale_free(self) -> bool:
        return self.method.atol == 0

    @property
    def exact_residual(self) -> bool:
        return self.method.exact_residual

    @property
    def chained(self) -> bool:
        return type(self.method) is Picard and not self.method.damping  # a subclass may take other steps

    def tolerance(self, precision: torch.dtype) -> tuple[int, float | None, float]:
        rtol = None if self.counts else max(self.method.rtol, torch.finfo(precision).eps)
        return self.method.max_steps, rtol, self.method.atol

    def init(self, problem: System, start: Tensor) -> Any:
        return self.method.init(problem, start)

    def step(self, problem: System, state: Any) -> Any:
        return self.method.step(problem, state)

    def value(self, state: Any) -> Tensor:
        return self.method.value(state)

    def residual(self, state: Any) -> Tensor | None:
        return self.method.residual(state)

    def point(self, state: Any) -> Tensor:
        return self.method.point(state)

    def keep_for_residual(self, state: Any) -> Any:
        return self.method.keep_for_residual(state)

    def keep_for_value(self, state: Any) -> Any:
        return self.method.keep_for_value(state)
