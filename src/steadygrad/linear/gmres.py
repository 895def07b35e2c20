"""GMRES: the smallest residual over the Krylov space, restarted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from steadygrad.iteration.norms import Numbers, numbers
from steadygrad.linear.basis import Basis
from steadygrad.linear.solver import LinearSolver
from steadygrad.linear.system import System
from steadygrad.method import check_count
from steadygrad.state.rows import length, norm, over

CENTRE = 1.6
"""Both guesses behind `gain_of` are low; this factor is the median of error / guess over the test problems."""
BREAKDOWN = 10.0
"""A new direction of so many roundings of the product is none: the space is full."""


class Krylov(NamedTuple):
    """An orthonormal basis V of the Krylov space of r = b − (I−Jᵀ)z, with Jᵀ V_k = V_{k+1} C_k."""

    z: Tensor
    """Where the space was begun."""
    beta: Tensor
    """‖r‖, in float64."""
    basis: Basis
    columns: tuple[Tensor, ...]
    """Those of C, in float64: (problems, j + 2) for the j-th."""

    @classmethod
    def of(cls, z: Tensor, r: Tensor) -> Krylov:
        """The space spanned by r alone."""
        beta = norm(r)
        return cls(z, beta.double(), Basis.of(over(r, beta).unsqueeze(1)), ())

    def extended(self, problem: System) -> Krylov:
        """The space with one more direction, for one product."""
        image = problem.vjp(self.basis.last)
        basis, column, length = self.basis.absorb(image, relative=BREAKDOWN * torch.finfo(image.dtype).eps)
        return self._replace(basis=basis, columns=(*self.columns, torch.cat([column, length], dim=1).double()))

    def hessenberg(self) -> Tensor:
        """H = E − C with (I−Jᵀ) V_k = V_{k+1} H, (problems, k + 1, k), E being the identity with a row of zeros."""
        steps = len(self.columns)
        H = torch.eye(steps + 1, steps, dtype=torch.float64, device=self.z.device).repeat(self.z.shape[0], 1, 1)
        for j, column in enumerate(self.columns):
            H[:, : j + 2, j] -= column
        return H

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """argmin_y ‖β e₁ − H y‖, and what is left, β e₁ − H y."""
        H = self.hessenberg()
        q, upper = torch.linalg.qr(H)
        diagonal = upper.diagonal(dim1=1, dim2=2)
        # A row that is solved has a zero column: leave it out.
        upper = upper + torch.diag_embed(torch.where(diagonal == 0, torch.inf, 0.0).to(upper.dtype))
        y = torch.linalg.solve_triangular(upper, self.beta.unsqueeze(2) * q[:, :1, :].mT, upper=True)
        rest = -(H @ y).squeeze(2)
        rest[:, :1] += self.beta
        return y.squeeze(2), rest


@dataclass(frozen=True, repr=False)
class GMRES(LinearSolver):
    """min ‖b − (I−Jᵀ)z‖ over the Krylov space of Jᵀ and b. Needs only that I−J is invertible. One product a step.

    No method with one product of Jᵀ a step needs fewer, until the restart: memory is up to `restart` + 1 states, and a
    restart may stall where the eigenvalues of I−J surround zero (then `LSQR`). Saad and Schultz 1986.
    """

    restart: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("restart", self.restart, least=1)

    def init(self, problem: System, start: Tensor) -> Krylov:
        return Krylov.of(start, problem.residual(start))

    def step(self, problem: System, state: Krylov) -> Krylov:
        if len(state.columns) == self.restart:
            y, rest = state.coefficients()
            state = Krylov.of(state.z + state.basis.combine(y), state.basis.combine(rest))
        return state.extended(problem)

    def value(self, state: Krylov) -> Tensor:
        return state.z + state.basis.combine(state.coefficients()[0]) if state.columns else state.z

    def residual(self, state: Krylov) -> Tensor:
        return length(state.coefficients()[1]) if state.columns else state.beta

    def gain(self, state: Krylov) -> Numbers:
        return numbers(gain_of(state.hessenberg()) if state.columns else torch.ones_like(state.beta))


def gain_of(hessenberg: Tensor) -> Tensor:
    """A guess at ‖(I−Jᵀ)⁻¹ r‖ / ‖r‖ for the smallest residual over a space, from what the space knows of I−Jᵀ.

    The geometric mean of two guesses: the gain of r itself, with I−Jᵀ taken to have its mean size on the one direction that
    the space has not seen, and the mean gain of all directions that it has.
    """
    # The unit vector orthogonal to the columns of H: the residual lies along it.
    normal = torch.linalg.qr(hessenberg, mode="complete").Q[:, :, -1]
    square = torch.cat([hessenberg, torch.zeros_like(hessenberg[:, :, :1])], dim=2)
    square[:, -1, -1] = hessenberg.square().sum(dim=(1, 2)).div(hessenberg.shape[2]).sqrt()
    own = length(torch.linalg.solve_ex(square, normal.unsqueeze(2)).result.squeeze(2))
    upper = torch.linalg.qr(hessenberg, mode="r").R
    inverse = torch.linalg.inv_ex(upper).inverse
    mean = inverse.square().sum(dim=(1, 2)).div(upper.shape[1]).sqrt().unsqueeze(1)
    return CENTRE * (own * mean).sqrt()
