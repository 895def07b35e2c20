"""BiCGSTAB: a short recurrence for non-symmetric systems, without products with J."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steadygrad.linear.solver import LinearSolver
from steadygrad.linear.system import System
from steadygrad.state.rows import dot, dots, ratio

BROKEN = 1e-14
"""A shadow residual whose cosine to the residual is below this has broken down: a hundred roundings of float64."""


class Shadowed(NamedTuple):
    """The iterate, its residual, the shadow residual, and the direction."""

    z: Tensor
    r: Tensor
    shadow: Tensor
    p: Tensor
    rho: Tensor


@dataclass(frozen=True, repr=False)
class BiCGSTAB(LinearSolver):
    """(I−Jᵀ) z = b by stabilised bi-conjugate gradients. Two products with Jᵀ a step, none with J; little memory.

    May break down or wander where the eigenvalues of I−J surround zero; a breakdown restarts from the iterate it has, and
    the best iterate is kept. van der Vorst 1992.
    """

    def init(self, problem: System, start: Tensor) -> Shadowed:
        r = problem.residual(start)
        return Shadowed(start, r, r, r, dot(r, r))

    def step(self, problem: System, state: Shadowed) -> Shadowed:
        z, r, shadow, p, rho = state
        q = p - problem.vjp(p)
        alpha = ratio(rho, dot(shadow, q))
        half = r - alpha * q
        t = half - problem.vjp(half)
        omega = ratio(*dots([half, t], t))
        z = z + alpha * p + omega * half
        r = half - omega * t
        previous = rho
        rho, square = dots([shadow, r], r)
        beta = ratio(rho, previous) * ratio(alpha, omega)
        p = r + beta * (p - omega * q)
        broken = rho.abs() <= BROKEN * dot(shadow, shadow).sqrt() * square.sqrt()
        if broken.any():
            shadow, p = torch.where(broken, r, shadow), torch.where(broken, r, p)
            rho = dot(shadow, r)
        return Shadowed(z, r, shadow, p, rho)

    def value(self, state: Shadowed) -> Tensor:
        return state.z

    def residual(self, state: Shadowed) -> Tensor:
        return state.r

    def keep_for_residual(self, state: Shadowed) -> Shadowed:
        return state._replace(shadow=state.r, p=state.r)

    def keep_for_value(self, state: Shadowed) -> Shadowed:
        return state._replace(r=state.z, shadow=state.z, p=state.z)  # only the iterate is asked for
