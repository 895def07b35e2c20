"""Small random maps with a steady state, and their gradients by any method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import steadygrad as sg
from steadygrad.paper.experiments.methods import Gradient

SETTLE = 4000
"""Steps to the steady state: at ρ(J) = 0.95 the error is below rounding after 700."""


@dataclass(frozen=True)
class Map:
    """F(h) = tanh(W h + x) in float64, and the loss ½‖h − c‖² of its steady state."""

    W: Tensor
    x: Tensor
    c: Tensor

    @classmethod
    def drawn(cls, size: int, radius: float, seed: int) -> Map:
        """W of normal entries, scaled to this spectral radius: not symmetric, its norm about twice the radius."""
        generator = torch.Generator().manual_seed(seed)
        W = torch.randn(size, size, generator=generator, dtype=torch.float64)
        scale = radius / float(torch.linalg.eigvals(W).abs().max())
        x, c = 0.3 * torch.randn(2, size, generator=generator, dtype=torch.float64)
        return cls(scale * W, x, c)

    def update(self, W: Tensor | None = None) -> Callable[[Tensor], Tensor]:
        matrix = self.W if W is None else W
        return lambda h: torch.tanh(matrix @ h + self.x)

    @torch.no_grad()
    def settled(self, W: Tensor | None = None, steps: int = SETTLE) -> Tensor:
        h, F = torch.zeros_like(self.x), self.update(W)
        for _ in range(steps):
            h = F(h)
        return h

    def jacobian(self, h: Tensor, W: Tensor | None = None) -> Tensor:
        matrix = (self.W if W is None else W).detach()
        return (1 - torch.tanh(matrix @ h + self.x) ** 2).unsqueeze(1) * matrix

    def gradient(self, start: Tensor, method: Gradient, forward: sg.Picard | None = None) -> Tensor:
        """dL/dW. From a steady state: after as many steps as the method may want to go back."""
        W = self.W.clone().requires_grad_()
        forward = sg.Picard(max_steps=100, rtol=0) if forward is None else forward
        solution = sg.steady_state(self.update(W), start, forward=forward, gradient=method, on_failure="ignore")
        (found,) = torch.autograd.grad(0.5 * (solution.value - self.c).square().sum(), W)
        return found

    def gradient_dense(self, h: Tensor, J: Tensor) -> Tensor:
        """zᵀ ∂F/∂W with (I − Jᵀ) z = h − c, by dense algebra."""
        z = torch.linalg.solve(torch.eye(len(h), dtype=h.dtype) - J.T, h - self.c)
        return torch.outer(z * (1 - h**2), h)  # tanh' = 1 − tanh², and tanh(W h + x) = h


def relative(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())
