"""LSQR: least squares by Golub–Kahan bidiagonalisation, the paper's own future work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.jacobian import Linear
from steadygrad.linear.rows import norm, over
from steadygrad.linear.solver import LinearSolver
from steadygrad.watch import Iterate


@dataclass(frozen=True, repr=False)
class LSQR(LinearSolver):
    """min ‖b − (I−Jᵀ)z‖ by Golub–Kahan bidiagonalisation. Needs only that I−J is invertible. Two products a step.

    The iterates of CG on the normal equations, computed more stably where I−J is ill-conditioned. Paige and Saunders 1982.
    """

    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        u = b - z + jacobian.vjp(z) if z.any() else b
        beta = norm(u)
        u = over(u, beta)
        v = u - jacobian.jvp(u)
        alpha = norm(v)
        v = w = over(v, alpha)
        phi, rho = beta, alpha
        inverse = over(torch.ones_like(phi), (phi * alpha).square())
        while True:
            # ‖(I−J) r‖ = φ·α·|c|; the gain is that of CG on the normal equations.
            yield Iterate(z, lambda phi=phi: phi, lambda phi=phi, inverse=inverse: 2 * phi * inverse.sqrt())
            u = v - jacobian.vjp(v) - alpha * u
            beta = norm(u)
            u = over(u, beta)
            v = u - jacobian.jvp(u) - beta * v
            alpha = norm(v)
            v = over(v, alpha)
            length = torch.hypot(rho, beta)
            c, s = over(rho, length), over(beta, length)
            z = z + over(c * phi, length) * w
            w = v - over(s * alpha, length) * w
            phi, rho = s * phi, -c * alpha
            inverse = inverse + over(torch.ones_like(phi), (phi * rho).square())
