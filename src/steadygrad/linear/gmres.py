"""GMRES: the smallest residual over the Krylov space, restarted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.jacobian import Linear
from steadygrad.linear.basis import Basis
from steadygrad.linear.rows import norm, over
from steadygrad.linear.solver import LinearSolver
from steadygrad.method import check_count
from steadygrad.watch import Iterate


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

    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        r = b - z + jacobian.vjp(z) if z.any() else b
        yield Krylov.of(r).best(z)
        while True:
            krylov = Krylov.of(r)
            yield from krylov.extend(jacobian, z, self.restart)
            z, r = krylov.solution(z), krylov.residual()


class Krylov:
    """An orthonormal basis V of a Krylov space, and H with (I−Jᵀ) V_k = V_{k+1} H_k, for each row."""

    def __init__(self, vectors: Tensor, hessenberg: Tensor, beta: Tensor) -> None:
        self.basis = Basis(vectors)
        self.hessenberg = hessenberg
        self.beta = beta
        # The unit vector orthogonal to the columns of H: the residual is β times its first entry, along it.
        self._normal: Tensor = torch.linalg.qr(hessenberg, mode="complete").Q[:, :, -1] if self.steps else torch.ones_like(beta)

    @classmethod
    def of(cls, r: Tensor) -> Krylov:
        """The space spanned by r alone."""
        beta = norm(r)
        return cls(over(r, beta).unsqueeze(1), r.new_zeros(r.shape[0], 1, 0, dtype=torch.float64), beta.double())

    @classmethod
    def of_powers(cls, powers: list[Tensor]) -> Krylov:
        """The space of r, Jᵀr, …, (Jᵀ)ˢr, from these vectors: no product is spent again."""
        stacked = torch.stack(powers, dim=2).double()
        size = torch.linalg.vector_norm(stacked, dim=1, keepdim=True)
        q, upper = torch.linalg.qr(over(stacked, size))
        if (upper.diagonal(dim1=1, dim2=2).abs() < 1e-6).any():
            return cls.of(powers[0])  # the powers are dependent: the space is smaller than their number, and soon found
        sign = torch.where(upper[:, :1, :1] < 0, -1.0, 1.0).double()
        q, upper = q * sign, upper * sign * size
        # Jᵀ takes column j of the powers to column j + 1: Jᵀ Q_s = Q_{s+1} R[:, 1:] R_s⁻¹.
        shifted = torch.linalg.solve_triangular(upper[:, :-1, :-1], upper[:, :, 1:], upper=True, left=False)
        steps = shifted.shape[2]
        eye = torch.eye(steps + 1, steps, dtype=shifted.dtype, device=shifted.device)
        return cls(q.mT.to(powers[0].dtype).contiguous(), eye - shifted, size[:, :, 0])

    @property
    def steps(self) -> int:
        return self.hessenberg.shape[2]

    def extend(self, jacobian: Linear, z: Tensor, limit: int) -> Iterator[Iterate]:
        """Grow the space up to `limit` steps and yield the best iterate of each."""
        while self.steps < limit:
            self._step(jacobian)
            yield self.best(z)

    def _step(self, jacobian: Linear) -> None:
        v = self.basis.last
        column, length = self.basis.absorb(v - jacobian.vjp(v))
        column, length = column.double(), length.double()
        along = (self._normal * column).sum(dim=1, keepdim=True)
        normal = torch.cat([self._normal * length, -along], dim=1)
        self._normal = over(normal, torch.hypot(length, along))
        wider = self.hessenberg.new_zeros(column.shape[0], self.steps + 2, self.steps + 1)
        wider[:, :-1, :-1] = self.hessenberg
        wider[:, :-1, -1] = column
        wider[:, -1, -1:] = length
        self.hessenberg = wider

    def best(self, z: Tensor) -> Iterate:
        """The iterate with the smallest residual over the present space."""
        if self.steps == 0:
            return Iterate(z, lambda: self.beta, lambda: torch.ones_like(self.beta))
        hessenberg, beta, basis, normal = self.hessenberg, self.beta, self.basis, self._normal
        return Iterate(
            lambda: z + basis.combine(_coefficients(hessenberg, beta)),
            lambda: beta * normal[:, :1],
            lambda: _gain(hessenberg, normal),
        )

    def solution(self, z: Tensor) -> Tensor:
        """z plus the correction with the smallest residual."""
        return z + self.basis.combine(_coefficients(self.hessenberg, self.beta))

    def residual(self) -> Tensor:
        """The residual of that."""
        y = _coefficients(self.hessenberg, self.beta).unsqueeze(2)
        rest = -(self.hessenberg @ y).squeeze(2)
        rest[:, :1] += self.beta
        return self.basis.combine(rest)


def _coefficients(hessenberg: Tensor, beta: Tensor) -> Tensor:
    """argmin_y ‖β e₁ − H y‖."""
    q, upper = torch.linalg.qr(hessenberg)
    diagonal = upper.diagonal(dim1=1, dim2=2)
    # A row that is solved has a zero column: leave it out.
    upper = upper + torch.diag_embed(torch.where(diagonal == 0, torch.inf, 0.0).to(upper.dtype))
    return torch.linalg.solve_triangular(upper, beta.unsqueeze(2) * q[:, :1, :].mT, upper=True).squeeze(2)


def gain_of(hessenberg: Tensor) -> Tensor:
    """The gain of the smallest residual over a space with this H."""
    return _gain(hessenberg, torch.linalg.qr(hessenberg, mode="complete").Q[:, :, -1])


def _gain(hessenberg: Tensor, normal: Tensor) -> Tensor:
    """A guess at ‖(I−Jᵀ)⁻¹ r‖ / ‖r‖ from what the space knows of I−Jᵀ.

    The geometric mean of two guesses: the gain of r itself, with I−Jᵀ taken to have its mean size on the one direction that
    the space has not seen, and the mean gain of all directions that it has. Both are low; the factor centres them.
    """
    square = torch.cat([hessenberg, torch.zeros_like(hessenberg[:, :, :1])], dim=2)
    square[:, -1, -1] = hessenberg.square().sum(dim=(1, 2)).div(hessenberg.shape[2]).sqrt()
    own = norm(torch.linalg.solve_ex(square, normal.unsqueeze(2)).result.squeeze(2))
    upper = torch.linalg.qr(hessenberg, mode="r").R
    inverse = torch.linalg.inv_ex(upper).inverse
    mean = inverse.square().sum(dim=(1, 2)).div(upper.shape[1]).sqrt().unsqueeze(1)
    return 2.4 * (own * mean).sqrt()
