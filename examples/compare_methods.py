"""Train a small equilibrium network with every method, and show what each costs and whether to trust it.

The network is h* = tanh(0.95 W h* + U x) with W orthogonal, so that it always has a steady state, and a linear read-out.
The task is the sign of x₀x₁, which no linear model can learn. All methods start from the same weights.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass

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


@dataclass
class Row:
    """What one method cost and reached; of the last step where nothing else is said."""

    method: str
    loss: float
    products: float
    """with J or its transpose, the mean over the steps; none for the unrolled methods"""
    residual: float | None
    kilobytes: float
    milliseconds: float
    """a step"""

    def cells(self) -> list[str]:
        residual = "–" if self.residual is None else f"{self.residual:.0e}"
        products = f"{self.products:.1f}" if self.products else "–"
        return [self.method, f"{self.loss:.3f}", products, residual, f"{self.kilobytes:,.0f} kB", f"{self.milliseconds:.1f} ms"]


def train(method: str, steps: int) -> Row:
    torch.manual_seed(0)
    network = Network(method)
    x = torch.randn(ROWS, INPUTS)
    y = (x[:, 0] * x[:, 1] > 0).float()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    products, adjoint, started = 0, None, time.process_time()
    for _ in range(steps):
        optimiser.zero_grad()
        network.loss(x, y).backward()
        optimiser.step()
        assert network.layer.solution is not None
        adjoint = network.layer.solution.adjoint
        products += adjoint.products if adjoint else 0
    milliseconds = 1e3 * (time.process_time() - started) / steps
    peak = peak_memory(lambda: network.loss(x, y).backward()) / 1024
    loss = network.loss(x, y).item()
    return Row(method, loss, products / steps, adjoint.residual if adjoint else None, peak, milliseconds)


def main(small: bool = False) -> list[Row]:
    steps = 2 if small else 100
    torch.set_num_threads(1)  # the network is too small to share
    console = Console()
    rows = [train(method, steps) for method in track(METHODS, description="training", console=console, transient=True)]
    table = Table(title=f"h* = tanh(0.95 W h* + U x), {steps} training steps (guessing: loss {math.log(2):.3f})")
    for name in ("method", "loss", "products", "adjoint residual", "peak memory", "time"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row.cells())
    console.print(table)
    console.print(
        "Products (with J or its transpose), memory and time are for one training step. bptt, tbptt and artbp differentiate\n"
        "the steps themselves: no adjoint equation, and memory that grows with the steps.",
        soft_wrap=True,
    )
    return rows


def draw(rows: list[Row], path: str) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(10, 3), layout="constrained", sharey=True)
    shown = (("loss", "loss at the end"), ("kilobytes", "memory of a step, kB"), ("milliseconds", "processor time, ms"))
    for axis, (name, title), colour in zip(axes, shown, ("#0072B2", "#D55E00", "#009E73"), strict=True):
        axis.barh([row.method for row in rows], [getattr(row, name) for row in rows], color=colour)
        axis.set(title=title, xscale="linear" if name == "loss" else "log")
    axes[0].locator_params(axis="x", nbins=4)
    axes[0].invert_yaxis()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="two training steps a method")
