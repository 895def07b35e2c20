"""LSQR: least squares by Golub–Kahan bidiagonalisation, the paper's own future work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steadygrad.iteration.norms import Numbers, numbers
from steadygrad.linear.solver import LinearSolver
from steadygrad.linear.system import System
from steadygrad.state.rows import norm, ratio


class Bidiagonal(NamedTuple):
    """The iterate, the vectors of the bidiagonalisation, and the rotation that solves it."""

    z: Tensor
    u: Tensor
    v: Tensor
    w: Tensor
    alpha: Tensor
    phi: Tensor
    rho: Tensor
    inverse: Tensor
    """Σ 1/‖(I−J) r_j‖², for the estimate of the error."""


@dataclass(frozen=True, repr=False)
class LSQR(LinearSolver):
    """min ‖b − (I−Jᵀ)z‖ by Golub–Kahan bidiagonalisation. Needs only that I−J is invertible. Two products a step.

    The iterates of CG on the normal equations, computed more stably where I−J is ill-conditioned. Paige and Saunders 1982.
    """

    def init(self, problem: System, start: Tensor) -> Bidiagonal:
        return self.at(problem, start, problem.residual(start))

    @staticmethod
    def at(problem: System, z: Tensor, r: Tensor) -> Bidiagonal:
        """The state at z, whose residual is r."""
        beta = norm(r)
        u = ratio(r, beta)  # not in place: it may be b
        v, alpha = _unit(u - problem.jvp(u))
        return Bidiagonal(z, u, v, v, alpha, beta, alpha, ratio(1.0, (beta * alpha).square()))

    def step(self, problem: System, state: Bidiagonal) -> Bidiagonal:
        z, u, v, w, alpha, phi, rho, inverse = state
        u, beta = _unit((v - problem.vjp(v)).addcmul_(alpha, u, value=-1))
        v, alpha = _unit((u - problem.jvp(u)).addcmul_(beta, v, value=-1))
        shorter = _least(torch.hypot(rho, beta)).reciprocal_()
        c, s = rho * shorter, beta * shorter
        z = torch.addcmul(z, c * phi * shorter, w)
        w = torch.addcmul(v, s * alpha * shorter, w, value=-1)
        phi, rho = s * phi, c * alpha.neg()
        return Bidiagonal(z, u, v, w, alpha, phi, rho, inverse + _least((phi * rho).square_()).reciprocal_())

    def value(self, state: Bidiagonal) -> Tensor:
        return state.z

    def residual(self, state: Bidiagonal) -> Tensor:
        return state.phi

    def keep_for_value(self, state: Bidiagonal) -> Bidiagonal:
        return state._replace(u=state.z, v=state.z, w=state.z)  # only the iterate is asked for

    def gain(self, state: Bidiagonal) -> Numbers:
        """The gain of CG on the normal equations (`NormalCG.gain`), with ‖(I−J) r‖ = φ·α·|c|."""
        return numbers(2 * state.phi.abs() * state.inverse.sqrt())


def _unit(u: Tensor) -> tuple[Tensor, Tensor]:
    """u / ‖u‖, in place, and ‖u‖; zero where u is: a row that is solved stays where it is."""
    length = norm(u)
    return u.div_(_least(length)), length


def _least(size: Tensor) -> Tensor:
    """Sizes by which may be divided."""
    return size.clamp_min(torch.finfo(size.dtype).tiny)
