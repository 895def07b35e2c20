"""What a warm start saves in full-batch training: evaluations of F and products, cold and warm. Counts, not seconds."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

import steadygrad as sg
from benchmarks.frame import Effort, Figures, Row, Rows, short


def rows(effort: Effort) -> Rows:
    steps = effort.pick(100, 3)
    what = f"a GRU cell of 32 units to its steady state, the same 64 inputs in each of {steps} steps of SGD; counts a step"
    yield Row("GRU cell", what, partial(measure, steps))


def measure(steps: int) -> Figures:
    cold, warm = work(False, steps), work(True, steps)
    return {"cold": cold, "warm": warm, "ratio": short(sum(warm) / sum(cold))}


def work(warm: bool, steps: int) -> list[float]:
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
    return [evaluations / steps, products / steps]
