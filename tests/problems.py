"""Test problems that know their answer: linear and nonlinear updates with a Jacobian that dense algebra can check."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

FAMILIES = ["random", "symmetric", "nonnormal", "rotation"]
RADII = [0.5, 0.9, 0.99]


def matrix(family: str, radius: float, size: int = 20, seed: int = 0) -> Tensor:
    """A float64 matrix of the given family with exactly the given spectral radius."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(size, size, generator=generator, dtype=torch.float64)
    orthogonal = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]
    if family == "random":
        J = draw
    elif family == "symmetric":
        J = draw + draw.T
    elif family == "nonnormal":
        triangular = torch.triu(draw, 1) / math.sqrt(size) + torch.diag(torch.linspace(-1, 1, size, dtype=torch.float64))
        J = orthogonal @ triangular @ orthogonal.T
    elif family == "rotation":
        angles = math.pi * torch.rand(size // 2, generator=generator, dtype=torch.float64)
        blocks = [torch.stack([torch.stack([a.cos(), -a.sin()]), torch.stack([a.sin(), a.cos()])]) for a in angles]
        J = orthogonal @ torch.block_diag(*blocks) @ orthogonal.T
    else:
        raise KeyError(family)
    return J * (radius / torch.linalg.eigvals(J).abs().max())


class DenseMap:
    """A matrix in the place of a Jacobian."""

    def __init__(self, J: Tensor) -> None:
        self.J = J
        self.products = 0

    def vjp(self, v: Tensor) -> Tensor:
        self.products += 1
        return v @ self.J

    def jvp(self, v: Tensor) -> Tensor:
        self.products += 1
        return v @ self.J.T

    def dense(self) -> Tensor:
        self.products += self.J.shape[0]
        return self.J.unsqueeze(0)


def adjoint_of(J: Tensor, b: Tensor) -> Tensor:
    """(I − Jᵀ)⁻¹ b for the rows of b, by LU."""
    return torch.linalg.solve(torch.eye(J.shape[0], dtype=J.dtype) - J.T, b.T).T


def true_residual(J: Tensor, z: Tensor, b: Tensor) -> float:
    return ((b - z + z @ J).norm() / b.norm()).item()


@dataclass
class Affine:
    """F(h) = J h + c: its steady state and every gradient are known."""

    J: Tensor
    c: Tensor

    @classmethod
    def of(cls, family: str, radius: float, seed: int = 0, dtype: torch.dtype = torch.float64) -> Affine:
        J = matrix(family, radius, seed=seed)
        c = torch.randn(J.shape[0], generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
        return cls(J.to(dtype).requires_grad_(), c.to(dtype).requires_grad_())

    def __call__(self, h: Tensor) -> Tensor:
        return self.J @ h + self.c

    def steady(self) -> Tensor:
        J, c = self.J.detach(), self.c.detach()
        return torch.linalg.solve(torch.eye(len(c), dtype=c.dtype) - J, c)

    def gradients(self, b: Tensor) -> tuple[Tensor, Tensor]:
        """∂⟨b, h*⟩/∂J and /∂c."""
        z = adjoint_of(self.J.detach(), b.unsqueeze(0))[0]
        return torch.outer(z, self.steady()), z


def tanh_problem(
    size: int = 12, rows: int = 3, gain: float = 0.8, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor, Tensor]:
    """F = tanh(h Wᵀ + x), with W, x and a start."""
    generator = torch.Generator().manual_seed(seed)
    W = torch.randn(size, size, generator=generator, dtype=dtype)
    W = (gain * W / torch.linalg.matrix_norm(W, 2)).requires_grad_()
    x = torch.randn(rows, size, generator=generator, dtype=dtype).requires_grad_()
    return (lambda h: torch.tanh(h @ W.T + x)), W, x, torch.zeros(rows, size, dtype=dtype)


def relative(a: Tensor, b: Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()
