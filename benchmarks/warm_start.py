"""What a warm start saves in full-batch training: evaluations of F and products, cold and warm, in one run.

A GRU cell to its steady state, the same 64 inputs in every step. Counts, not seconds.
"""

from __future__ import annotations

import torch
from torch import nn

import steadygrad as sg


def work(warm: bool, steps: int = 100) -> tuple[float, float]:
    """Evaluations of F and products a training step."""
    torch.manual_seed(0)
    layer = sg.Equilibrium(nn.GRUCell(8, 32), warm_start=warm, forward=sg.Picard(max_steps=1000))
    x, y = torch.randn(64, 8), 0.3 * torch.randn(64, 32)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.05)
    evaluations = products = 0
    for _ in range(steps):
        optimiser.zero_grad()
        (layer(x) - y).square().mean().backward()
        optimiser.step()
        evaluations += layer.solution.steps
        products += layer.solution.adjoint.products
    return evaluations / steps, products / steps


if __name__ == "__main__":
    torch.set_num_threads(1)
    cold, warm = work(False), work(True)
    for name, (evaluations, products) in {"cold": cold, "warm": warm}.items():
        print(f"{name}: {evaluations:5.1f} evaluations of F and {products:5.1f} products a step")
    print(f"warm / cold: {sum(warm) / sum(cold):.2f}")
