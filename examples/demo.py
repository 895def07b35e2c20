"""Train a small equilibrium network with every method, and show what each costs and whether to trust it.

The network is a GRU cell run to its steady state, h* = GRU(x, h*), with a linear read-out; the task is the parity of two
signs, which a linear model cannot learn. All methods start from the same weights. Run it by `make demo`.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import steadygrad as sg
from steadygrad.measure import peak_memory

METHODS = ["auto", "neumann-rbp", "cg-rbp", "rbp", "one-step", "dense", "bptt", "tbptt", "artbp"]


def data(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))
    return x, (x[:, 0] * x[:, 1] > 0).float()


class Network(nn.Module):
    def __init__(self, method: str) -> None:
        super().__init__()
        self.layer = sg.Equilibrium(nn.GRUCell(4, 8), forward=sg.Picard(max_steps=300, rtol=1e-4), gradient=method)
        self.readout = nn.Linear(8, 1)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.binary_cross_entropy_with_logits(self.readout(self.layer(x)).squeeze(1), y)


def train(method: str, steps: int) -> dict[str, str]:
    torch.manual_seed(0)
    network = Network(method)
    x, y = data(64)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.03)
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
        "loss": f"{network.loss(x, y).item():.4f}",
        "products / step": f"{products / steps:.1f}" if products else "–",
        "adjoint residual": f"{adjoint.residual:.0e}" if adjoint else "–",
        "status": adjoint.status.name if adjoint else "unrolled",
        "peak memory": f"{peak / 1024:,.0f} kB",
        "ms / step": f"{1000 * seconds / steps:.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="training steps a method")
    steps = parser.parse_args().steps
    console = Console()
    rows = [train(method, steps) for method in track(METHODS, description="training", console=console, transient=True)]
    table = Table(title=f"h* = GRU(x, h*), {steps} training steps (chance: loss {math.log(2):.4f})")
    for name in rows[0]:
        table.add_column(name, justify="left" if name in ("method", "status") else "right")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    console.print(
        "products: with J or its transpose, of the state's own size. Unrolled methods solve no adjoint equation: autograd walks\n"
        "the steps themselves, and their memory grows with them. MAX_STEPS is a count that was asked for."
    )


if __name__ == "__main__":
    main()
