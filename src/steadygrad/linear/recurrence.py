"""The adjoint equation z = Jᵀz + b as a fixed point: original RBP and its accelerated forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.jacobian import Linear
from steadygrad.linear.solver import AdjointSolver, watch_adjoint
from steadygrad.watch import Iterate, Watch


@dataclass(frozen=True, repr=False)
class Recurrence(AdjointSolver):
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

    def watch(self, b: Tensor) -> Watch:
        return watch_adjoint(b, self.method.max_steps, None if self.counts else self.method.rtol, self.method.atol)

    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        return self.method.iterates(lambda z: jacobian.vjp(z) + b if z.any() else b, z)
