"""CG-RBP: conjugate gradients on the normal equations."""

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
class NormalCG(LinearSolver):
    """CG-RBP: conjugate gradients on (I−J)(I−Jᵀ) z = (I−J) b. Needs only that I−J is invertible. Two products a step.

    The residual ‖b − (I−Jᵀ)z‖ never grows, but the condition number is squared. `ridge` > 0 adds ridge·I to the normal
    matrix: stable where I−J is nearly singular, at the price of a bias that the certificate shows.
    Liao et al. 2018, section 4.1; Hestenes and Stiefel 1952.
    """

    ridge: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ridge < 0:
            raise ValueError(f"ridge must not be negative; got {self.ridge}.")

    @property
    def biased(self) -> bool:
        return self.ridge > 0

    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        r = b - z + jacobian.vjp(z) if z.any() else b
        s = p = r - jacobian.jvp(r) - self.ridge * z
        gamma = dot(s, s)
        inverse = over(torch.ones_like(gamma), gamma)
        while True:
            # The s_j are orthogonal and ⟨e, s_j⟩ = ⟨r, r_j⟩ = ‖r‖², so ‖e‖² ≥ ‖r‖⁴ Σ 1/‖s_j‖²: a bound that is
            # nearly attained, and twice its root is a good guess.
            if self.ridge:
                yield Iterate(z, lambda s=s: s, point=z)
            else:
                yield Iterate(z, lambda r=r: r, lambda r=r, inverse=inverse: 2 * (dot(r, r) * inverse).sqrt())
            q = p - jacobian.vjp(p)
            alpha = over(gamma, dot(q, q) + self.ridge * dot(p, p))
            z = z + alpha * p
            r = r - alpha * q
            s = r - jacobian.jvp(r) - self.ridge * z
            gamma, previous = dot(s, s), gamma
            p = s + over(gamma, previous) * p
            inverse = inverse + over(torch.ones_like(gamma), gamma)
