"""Solvers for symmetric I − J, as at the minimum of an energy: one product a step, little memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from steadygrad.jacobian import Linear
from steadygrad.linear.gmres import gain_of
from steadygrad.linear.rows import dot, norm, over
from steadygrad.linear.solver import LinearSolver
from steadygrad.watch import Iterate


@dataclass(frozen=True, repr=False)
class CG(LinearSolver):
    """(I−J) z = b by conjugate gradients. Valid where I−J is symmetric positive definite. One product a step.

    Elsewhere it may wander; the certificate says so. Hestenes and Stiefel 1952.
    """

    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        r = p = b - z + jacobian.vjp(z) if z.any() else b
        gamma = dot(r, r)
        while True:
            yield Iterate(z, lambda r=r: r, point=z)
            q = p - jacobian.vjp(p)
            alpha = over(gamma, dot(p, q))
            z = z + alpha * p
            r = r - alpha * q
            gamma, previous = dot(r, r), gamma
            p = r + over(gamma, previous) * p


@dataclass(frozen=True, repr=False)
class MINRES(LinearSolver):
    """min ‖b − (I−J)z‖ over the Krylov space, by Lanczos. Valid where I−J is symmetric. One product a step.

    The residual never grows, also where I−J is indefinite (a saddle). Paige and Saunders 1975.
    """

    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        r = b - z + jacobian.vjp(z) if z.any() else b
        beta = eta = norm(r)
        v, before = over(r, beta), torch.zeros_like(r)
        w0 = w1 = torch.zeros_like(r)
        c0 = c1 = torch.ones_like(beta)
        s0 = s1 = torch.zeros_like(beta)
        diagonal: list[Tensor] = []
        below: list[Tensor] = [beta]
        while True:
            yield Iterate(z, lambda eta=eta: eta, partial(_gain, tuple(diagonal), tuple(below), z))
            image = v - jacobian.vjp(v)
            alpha = dot(v, image)
            after = image - alpha * v - beta * before
            length = norm(after)
            delta = c1 * alpha - c0 * s1 * beta
            rho1, rho2, rho3 = torch.hypot(delta, length), s1 * alpha + c0 * c1 * beta, s0 * beta
            c0, c1, s0, s1 = c1, over(delta, rho1), s1, over(length, rho1)
            w0, w1 = w1, over(v - rho3 * w0 - rho2 * w1, rho1)
            z = z + c1 * eta * w1
            eta = -s1 * eta
            before, v, beta = v, over(after, length), length
            diagonal.append(alpha)
            below.append(length)


def _gain(diagonal: tuple[Tensor, ...], below: tuple[Tensor, ...], like: Tensor) -> Tensor:
    """That of GMRES on the tridiagonal matrix of the Lanczos steps, less the part of its factor that symmetry spares."""
    steps = len(diagonal)
    if steps == 0:
        return torch.ones_like(like[:, :1])
    hessenberg = torch.zeros(like.shape[0], steps + 1, steps, dtype=torch.float64, device=like.device)
    for j in range(steps):
        hessenberg[:, j, j] = diagonal[j][:, 0]
        hessenberg[:, j + 1, j] = below[j + 1][:, 0]
        if j + 1 < steps:
            hessenberg[:, j, j + 1] = below[j + 1][:, 0]
    return 0.6 * gain_of(hessenberg)
