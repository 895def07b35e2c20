"""Neumann-RBP: the truncated Neumann series."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from steadygrad.jacobian import Linear
from steadygrad.linear.solver import LinearSolver
from steadygrad.watch import Iterate


@dataclass(frozen=True, repr=False)
class Neumann(LinearSolver):
    """Neumann-RBP: z = Σ_{k≤K} (Jᵀ)ᵏ b. Converges iff ρ(J) < 1. One product a term. Liao et al. 2018, Algorithm 2.

    `Neumann(steps=K)` has K+1 terms: it equals K+1 steps of RBP from zero and K+1 steps of truncated BPTT at a steady
    state. `Neumann(rtol=1e-6)` adds terms until the residual is small enough.
    """

    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        # The term v_k is the residual of the sum before it.
        v = b - z + jacobian.vjp(z) if z.any() else b
        z = z + v
        yield Iterate(z, lambda v=v: v)
        while True:
            v = jacobian.vjp(v)
            z = z + v
            yield Iterate(z, lambda v=v: v)
