"""Solvers for symmetric I − J, as at the minimum of an energy: one product a step, little memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.gain import Gains, gains_by_products
from steadygrad.iteration.norms import Numbers, numbers
from steadygrad.linear.gmres import gain_of
from steadygrad.linear.solver import LinearSolver
from steadygrad.linear.system import System
from steadygrad.state.rows import dot, norm, ratio

SYMMETRIC = 0.6
"""The part of GMRES's factor that symmetry spares: the median of estimate / error over the symmetric test problems."""


class Conjugate(NamedTuple):
    """The iterate, its residual, the direction, and the last few directions with their images."""

    z: Tensor
    r: Tensor
    p: Tensor
    gamma: Tensor
    seen: tuple[tuple[Tensor, Tensor], ...] = ()
    """(p, Jp)."""


@dataclass(frozen=True, repr=False)
class CG(LinearSolver):
    """(I−J) z = b by conjugate gradients. Valid where I−J is symmetric positive definite. One product a step.

    Elsewhere it may wander; the certificate says so. Hestenes and Stiefel 1952.
    """

    window: ClassVar[int] = 4
    """Directions kept for the estimate of the error."""

    @staticmethod
    def at(z: Tensor, r: Tensor) -> Conjugate:
        """The state that begins at z, where the residual is r."""
        return Conjugate(z, r, r, dot(r, r))

    def init(self, problem: System, start: Tensor) -> Conjugate:
        return self.at(start, problem.residual(start))

    def step(self, problem: System, state: Conjugate) -> Conjugate:
        z, r, p, gamma, seen = state
        image = problem.vjp(p)
        q = p - image
        alpha = ratio(gamma, dot(p, q))
        z = torch.addcmul(z, alpha, p)
        r = torch.addcmul(r, alpha, q, value=-1)
        gamma, previous = dot(r, r), gamma
        return Conjugate(z, r, torch.addcmul(r, ratio(gamma, previous), p), gamma, (*seen[1 - self.window :], (p, image)))

    def value(self, state: Conjugate) -> Tensor:
        return state.z

    def residual(self, state: Conjugate) -> Tensor:
        return state.r

    def keep_for_value(self, state: Conjugate) -> Conjugate:
        return Conjugate(state.z, state.z, state.z, state.gamma)  # only the iterate is asked for

    def gain(self, state: Conjugate) -> Gains:
        """From the last few products: I − J takes p to p − Jp."""
        return gains_by_products(list(state.seen), state.r, state.z)


class Tridiagonal(NamedTuple):
    """The iterate, the last Lanczos vectors, the last two rotations, and the tridiagonal matrix."""

    z: Tensor
    eta: Tensor
    v: Tensor
    before: Tensor
    w0: Tensor
    w1: Tensor
    cosines: tuple[Tensor, Tensor]
    sines: tuple[Tensor, Tensor]
    diagonal: tuple[Tensor, ...]
    below: tuple[Tensor, ...]


@dataclass(frozen=True, repr=False)
class MINRES(LinearSolver):
    """min ‖b − (I−J)z‖ over the Krylov space, by Lanczos. Valid where I−J is symmetric. One product a step.

    The residual never grows, also where I−J is indefinite (a saddle). Paige and Saunders 1975.
    """

    def init(self, problem: System, start: Tensor) -> Tridiagonal:
        r = problem.residual(start)
        beta = norm(r)
        nothing, one, zero = torch.zeros_like(r), torch.ones_like(beta), torch.zeros_like(beta)
        return Tridiagonal(start, beta, ratio(r, beta), nothing, nothing, nothing, (one, one), (zero, zero), (), (beta,))

    def step(self, problem: System, state: Tridiagonal) -> Tridiagonal:
        z, eta, v, before, w0, w1, (c0, c1), (s0, s1), diagonal, below = state
        beta = below[-1]
        image = v - problem.vjp(v)
        alpha = dot(v, image)
        after = image - alpha * v - beta * before
        length = norm(after)
        delta = c1 * alpha - c0 * s1 * beta
        rho1, rho2, rho3 = torch.hypot(delta, length), s1 * alpha + c0 * c1 * beta, s0 * beta
        cosines, sines = (c1, ratio(delta, rho1)), (s1, ratio(length, rho1))
        w0, w1 = w1, ratio(v - rho3 * w0 - rho2 * w1, rho1)
        z = z + cosines[1] * eta * w1
        return Tridiagonal(
            z, -sines[1] * eta, ratio(after, length), v, w0, w1, cosines, sines, (*diagonal, alpha), (*below, length)
        )

    def value(self, state: Tridiagonal) -> Tensor:
        return state.z

    def residual(self, state: Tridiagonal) -> Tensor:
        return state.eta

    def gain(self, state: Tridiagonal) -> Numbers:
        """The gain of GMRES on the tridiagonal matrix of the Lanczos steps."""
        steps = len(state.diagonal)
        if steps == 0:
            return numpy.ones(state.z.shape[0])
        hessenberg = numpy.zeros((state.z.shape[0], steps + 1, steps))
        for j in range(steps):
            hessenberg[:, j, j], below = numbers(state.diagonal[j]), numbers(state.below[j + 1])
            hessenberg[:, j + 1, j] = below
            if j + 1 < steps:
                hessenberg[:, j, j + 1] = below
        return SYMMETRIC * gain_of(hessenberg)
