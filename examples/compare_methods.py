"""Train a small equilibrium network with every method, and show what each costs and whether to trust it.

The network is h* = tanh(0.95 W h* + U x) with W orthogonal, so that it always has a steady state, and a linear read-out.
The task is the sign of x₀x₁, which no linear model can learn. All methods start from the same weights.
"""

from __future__ import annotations

import argparse
import math
import os
import time

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # the allocator has remarks on being measured

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

import steadygrad as sg
from steadygrad.peak_memory import peak_memory

METHODS = ["auto", "neumann-rbp", "cg-rbp", "rbp", "one-step", "dense", "bptt", "tbptt", "artbp"]
ROWS, INPUTS, HIDDEN = 64, 4, 16


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(INPUTS, HIDDEN)
        self.mix = orthogonal(nn.Linear(HIDDEN, HIDDEN, bias=False))

    def forward(self, x: Tensor, h: Tensor | None) -> Tensor:
        return torch.tanh(self.read(x) + (0.95 * self.mix(h) if h is not None else 0))


class Network(nn.Module):
    def __init__(self, method: str) -> None:
        super().__init__()
        self.layer = sg.Equilibrium(Cell(), forward=sg.Picard(max_steps=200, rtol=1e-5), gradient=method)
        self.readout = nn.Linear(HIDDEN, 1)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        with parametrize.cached():  # make W orthogonal once, not at every step
            h = self.layer(x)
        return nn.functional.binary_cross_entropy_with_logits(self.readout(h).squeeze(1), y)


def train(method: str, steps: int) -> dict[str, str]:
    torch.manual_seed(0)
    network = Network(method)
    x = torch.randn(ROWS, INPUTS)
    y = (x[:, 0] * x[:, 1] > 0).float()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    products = 0
    started = time.perf_counter()
    for _ in range(steps):
        optimiser.zero_grad()
        network.loss(x, y).backward()
        optimiser.step()
        adjoint = network.layer.solution.adjoint
        products += adjoint.products if adjoint else 0
    seconds = time.perf_counter() - started
    peak = peak_memory(lambda: network.loss(x, y).backward())
    adjoint = network.layer.solution.adjoint
    return {
        "method": method,
        "loss": f"{network.loss(x, y).item():.3f}",
        "products": f"{products / steps:.1f}" if products else "–",
        "adjoint residual": f"{adjoint.residual:.0e}" if adjoint else "–",
        "peak memory": f"{peak / 1024:,.0f} kB",
        "time": f"{1000 * seconds / steps:.1f} ms",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="training steps a method")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)  # the network is too small to share
    console = Console()
    rows = [train(method, steps) for method in track(METHODS, description="training", console=console, transient=True)]
    table = Table(title=f"h* = tanh(0.95 W h* + U x), {steps} training steps (guessing: loss {math.log(2):.3f})")
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    console.print(
        "Products (with J or its transpose), memory and time are for one training step. bptt, tbptt and artbp differentiate\n"
        "the steps themselves: no adjoint equation, and memory that grows with the steps.",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
