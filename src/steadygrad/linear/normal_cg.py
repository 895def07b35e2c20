"""CG-RBP: conjugate gradients on the normal equations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steadygrad.iteration.norms import Numbers, numbers
from steadygrad.linear.solver import REMEMBERED, LinearSolver
from steadygrad.linear.system import System
from steadygrad.method import check_number
from steadygrad.state.rows import dot, ratio


class NormalDescent(NamedTuple):
    """The iterate, its residual r, that of the normal equations s, and the direction p."""

    z: Tensor
    r: Tensor
    s: Tensor
    p: Tensor
    gamma: Tensor
    inverse: Tensor
    """Σ 1/‖s_j‖², for the estimate of the error."""


@dataclass(frozen=True, repr=False)
class NormalCG(LinearSolver):
    """CG-RBP: conjugate gradients on (I−J)(I−Jᵀ) z = (I−J) b. Needs only that I−J is invertible. Two products a step.

    The residual ‖b − (I−Jᵀ)z‖ never grows, but the condition number is squared. `ridge` > 0 adds ridge·I to the normal
    matrix: stable where I−J is nearly singular, at the price of a bias that the certificate shows.
    Liao et al. 2018, section 4.1; Hestenes and Stiefel 1952.
    """

    ridge: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("ridge", self.ridge)
        if self.ridge < 0:
            raise ValueError(f"ridge must not be negative; got {self.ridge}.")

    @property
    def biased(self) -> bool:
        return self.ridge > 0

    @property
    def remembered(self) -> int:
        return REMEMBERED if self.ridge else 1

    def init(self, problem: System, start: Tensor) -> NormalDescent:
        r = problem.residual(start)
        s = r - problem.jvp(r) - self.ridge * start
        gamma = dot(s, s)
        return NormalDescent(start, r, s, s, gamma, ratio(torch.ones_like(gamma), gamma))

    def step(self, problem: System, state: NormalDescent) -> NormalDescent:
        z, r, s, p, gamma, inverse = state
        q = p - problem.vjp(p)
        alpha = ratio(gamma, dot(q, q) + self.ridge * dot(p, p))
        z = z + alpha * p
        r = r - alpha * q
        s = r - problem.jvp(r) - self.ridge * z
        gamma, previous = dot(s, s), gamma
        p = s + ratio(gamma, previous) * p
        return NormalDescent(z, r, s, p, gamma, inverse + ratio(torch.ones_like(gamma), gamma))

    def value(self, state: NormalDescent) -> Tensor:
        return state.z

    def residual(self, state: NormalDescent) -> Tensor:
        return state.r

    def progress(self, state: NormalDescent) -> Tensor:
        """With a ridge, what is left of the normal equations: the residual itself cannot vanish."""
        return state.s if self.ridge else state.r

    def gain(self, state: NormalDescent) -> Numbers | None:
        """The s_j are orthogonal and ⟨e, s_j⟩ = ⟨r, r_j⟩ = ‖r‖², so ‖e‖² ≥ ‖r‖⁴ Σ 1/‖s_j‖²: twice its root is a good guess."""
        return None if self.ridge else numbers(2 * (dot(state.r, state.r) * state.inverse).sqrt())
