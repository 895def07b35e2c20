"""BiCGSTAB: a short recurrence for non-symmetric systems, without products with J."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.jacobian import Linear
from steadygrad.linear.rows import dot, over
from steadygrad.linear.solver import LinearSolver
from steadygrad.watch import Iterate


@dataclass(frozen=True, repr=False)
class BiCGSTAB(LinearSolver):
    """(I−Jᵀ) z = b by stabilised bi-conjugate gradients. Two products with Jᵀ a step, none with J; little memory.

    May break down or wander where the eigenvalues of I−J surround zero; a breakdown restarts from the iterate it has, and
    the best iterate is kept. van der Vorst 1992.
    """

    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        r = b - z + jacobian.vjp(z) if z.any() else b
        shadow = p = r
        rho = dot(shadow, r)
        while True:
            yield Iterate(z, lambda r=r: r, point=z)
            q = p - jacobian.vjp(p)
            alpha = over(rho, dot(shadow, q))
            half = r - alpha * q
            t = half - jacobian.vjp(half)
            omega = over(dot(t, half), dot(t, t))
            z = z + alpha * p + omega * half
            r = half - omega * t
            rho, previous = dot(shadow, r), rho
            beta = over(rho, previous) * over(alpha, omega)
            p = r + beta * (p - omega * q)
            broken = rho.abs() <= 1e-14 * dot(shadow, shadow).sqrt() * dot(r, r).sqrt()
            if broken.any():
                shadow, p = torch.where(broken, r, shadow), torch.where(broken, r, p)
                rho = dot(shadow, r)
