"""Fit a small energy model: predictions are minima of a learned energy, differentiated at the minimum.

E(h; x) = ½‖h‖² + Σ softplus(A h + B x + c): convex in h, so the minimum is unique; its parameters are learned so that the
minimum matches targets. Nothing is unrolled, and the Hessian is never formed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import steadygrad as sg


class Energy(nn.Module):
    def __init__(self, inputs: int = 2, state: int = 3, units: int = 16) -> None:
        super().__init__()
        self.state = state
        self.mix = nn.Linear(state, units, bias=False)
        self.read = nn.Linear(inputs, units)

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return 0.5 * h.square().sum(-1) + softplus(self.mix(h) + self.read(x)).sum(-1)


def fit(steps: int = 100) -> list[float]:
    """Train and return the losses."""
    torch.manual_seed(0)
    x = torch.randn(64, 2)
    y = torch.stack([x[:, 0].sin(), x[:, 1].cos(), x[:, 0] * x[:, 1]], dim=1)
    energy = Energy()
    optimiser = torch.optim.Adam(energy.parameters(), lr=0.05)
    losses: list[float] = []
    solution = None
    for _ in range(steps):
        optimiser.zero_grad()
        # The data are the same in every step, so the last minimum and adjoint are good starts.
        solution = sg.minimum(energy, torch.zeros(64, energy.state), x, batch_dims=1, forward=sg.Newton(rtol=1e-4), warm=solution)
        loss = (solution.value - y).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    history = fit()
    for step in range(0, len(history), 10):
        print(f"step {step:3d}  loss {history[step]:.4f}")
    print(f"step {len(history) - 1:3d}  loss {history[-1]:.4f}")
