"""Adjoint problems of every kind: affine maps F(h) = h Jᵀ + c with a given J, and trained networks at their steady state.

An affine map knows its steady state, so that the adjoint is solved alone, also where iterating F would not find it; the
gradient of c is the adjoint z = (I − Jᵀ)⁻¹ b itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import steadygrad as sg

RADII = (0.5, 0.8, 0.9, 0.95, 0.99)
"""ρ(J) of the random contractions."""


@dataclass(frozen=True)
class Adjoint:
    """One adjoint equation: F with its steady state, the cotangent b, and the exact z in float64."""

    update: Callable[[Tensor, Tensor], Tensor]
    """F(h, c); ∂F/∂c is the identity."""
    state: Tensor
    c: Tensor
    b: Tensor
    exact: Tensor
    symmetric: bool = False

    def solve(self, solver: object) -> tuple[Tensor, sg.AdjointSolution]:
        """z by this solver through the public call, with its certificate."""
        solution = sg.steady_state(
            self.update,
            self.state,
            self.c,
            forward=sg.Picard(max_steps=1, rtol=0),
            gradient=sg.Implicit(solver),
            on_failure="ignore",
        )
        (z,) = torch.autograd.grad((solution.value * self.b).sum(), self.c)
        assert solution.adjoint is not None
        return z, solution.adjoint

    def error(self, z: Tensor) -> float:
        return float((z.double() - self.exact).norm() / self.exact.norm())


def affine(J: Tensor, rows: int, symmetric: bool = False) -> Adjoint:
    """F(h) = h Jᵀ + c on `rows` rows that share J, in float32."""
    generator = torch.Generator().manual_seed(1)
    size = len(J)
    state, b = (torch.randn(rows, size, generator=generator, dtype=torch.float64) for _ in range(2))
    c = state - state @ J.T
    exact = torch.linalg.solve(torch.eye(size, dtype=torch.float64) - J.T, b.T).T  # (I − Jᵀ) z = b, a row a column
    matrix = J.float().T.contiguous()

    def update(h: Tensor, c: Tensor) -> Tensor:
        return h @ matrix + c

    return Adjoint(update, state.float(), c.float().requires_grad_(), b.float(), exact, symmetric)


def matrices(size: int) -> dict[str, Tensor]:
    """J of every family, in float64."""
    generator = torch.Generator().manual_seed(0)

    def gaussian() -> Tensor:
        return torch.randn(size, size, generator=generator, dtype=torch.float64)

    def of_radius(radius: float) -> Tensor:
        G = gaussian()
        return radius * G / torch.linalg.eigvals(G).abs().max()

    Q = torch.linalg.qr(gaussian())[0]
    even = torch.linspace(-0.9, 0.95, size, dtype=torch.float64)
    near_one = torch.cat([torch.linspace(-0.8, 0.8, size - 1, dtype=torch.float64), torch.tensor([1 - 1e-3]).double()])
    return {
        **{f"random, ρ = {radius}": of_radius(radius) for radius in RADII},
        "rotation-like, ρ = 0.9": 0.9 * Q,
        "rotation-like, ρ = 0.99": 0.99 * Q,
        "non-normal": 0.5 * torch.eye(size, dtype=torch.float64) + gaussian().triu(1) * (2 / math.sqrt(size)),
        "symmetric": Q @ torch.diag(even) @ Q.T,
        "nearly singular": Q @ torch.diag(near_one) @ Q.T + 0.05 / math.sqrt(size) * gaussian().triu(1),
        "random, ρ = 1.3": of_radius(1.3),
        "1.5 × orthogonal": 1.5 * Q,
    }


class Burden(torch.autograd.Function):
    """The identity, which costs a matrix product of a given size in every call, forward and backward: F made dear."""

    @staticmethod
    def forward(ctx, h: Tensor, work: Tensor) -> Tensor:
        ctx.work = work
        work @ work
        return h.clone()

    @staticmethod
    def backward(ctx, grad: Tensor):
        return Burden.apply(grad, ctx.work), None


def dear(adjoint: Adjoint, side: int) -> Adjoint:
    """The same problem with an F that also multiplies two matrices of this side, forward and in every product."""
    work = torch.ones(side, side)
    update = adjoint.update
    burdened = lambda h, c: update(Burden.apply(h, work), c)  # noqa: E731
    return Adjoint(burdened, adjoint.state, adjoint.c, adjoint.b, adjoint.exact, adjoint.symmetric)
