"""Fit a small energy model: predictions are minima of a learned energy, differentiated at the minimum.

E(h; x) = ½‖h‖² + Σ softplus(A h + B x + c): convex in h, so the minimum is unique; its parameters are learned so that the
minimum matches targets. Nothing is unrolled, and the Hessian is never formed.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass
class Found:
    losses: list[float]
    minima: Tensor
    """(64, 3), at the end"""
    targets: Tensor


def main(small: bool = False) -> Found:
    torch.manual_seed(0)
    x = torch.randn(64, 2)
    y = torch.stack([x[:, 0].sin(), x[:, 1].cos(), x[:, 0] * x[:, 1]], dim=1)
    energy = Energy()
    optimiser = torch.optim.Adam(energy.parameters(), lr=0.05)
    losses: list[float] = []
    solution = None
    for _ in range(25 if small else 100):
        optimiser.zero_grad()
        # The data are the same in every step, so the last minimum and adjoint are good starts.
        solution = sg.minimum(energy, torch.zeros(64, energy.state), x, batch_dims=1, forward=sg.Newton(rtol=1e-4), warm=solution)
        loss = (solution.value - y).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert solution is not None
    for step in [*range(0, len(losses), 10), len(losses) - 1]:
        print(f"step {step:3d}  loss {losses[step]:.4f}")
    return Found(losses, solution.value.detach(), y)


def draw(found: Found, path: str) -> None:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
    left.semilogy(found.losses, color="#0072B2")
    left.set(title="The energy is learned through its minimum", xlabel="step", ylabel="mean square error")
    for column, (name, colour, marker) in enumerate(
        (("sin a", "#0072B2", "o"), ("cos b", "#D55E00", "s"), ("a b", "#009E73", "^"))
    ):
        points = found.targets[:, column].tolist(), found.minima[:, column].tolist()
        right.scatter(*points, color=colour, marker=marker, s=14, label=name)
    right.axline((0, 0), slope=1, color="#555555", linestyle=":", linewidth=0.8)
    right.set(title="Where the energy is least, for 64 inputs (a, b)", xlabel="target", ylabel="minimum found")
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="25 steps instead of 100")
