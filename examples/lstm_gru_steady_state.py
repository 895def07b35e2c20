"""LSTM and GRU cells at rest: torch's own cells, an input that stays, and the state in which they end.

Both learn a curve, angle → (cos 2a, sin 3a), read off their steady state. An LSTM's state is a pair (h, c):
nothing has to be said about it. A penalty on ‖J‖ keeps them quick. In the end their gradient is compared with that
of BPTT through 400 steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import steadygrad as sg

HIDDEN = 24


class Curve(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.layer = sg.Equilibrium(cell, forward=sg.Picard(max_steps=400, rtol=1e-5))
        self.decode = nn.Linear(HIDDEN, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = self.layer(x)
        return self.decode(state[0] if isinstance(state, tuple) else state)


@dataclass
class Fit:
    name: str
    angle: Tensor
    target: Tensor
    loss: list[float] = field(default_factory=list[float])
    steps: list[int] = field(default_factory=list[int])
    curve: Tensor = field(default_factory=lambda: torch.empty(0))
    distance: float = 0.0
    """Of the gradient from that of BPTT, relative."""


def gradient(model: Curve, method: str, forward: sg.Picard, x: Tensor, target: Tensor) -> Tensor:
    other = Curve(model.layer.cell)
    other.decode = model.decode
    other.layer = sg.Equilibrium(model.layer.cell, forward=forward, gradient=method)
    weights = list(model.layer.cell.parameters())
    parts = torch.autograd.grad((other(x) * target).mean(), weights)  # not the loss, whose gradient vanishes at the end
    return torch.cat([part.flatten() for part in parts])


def too_large(model: Curve, x: Tensor) -> Tensor:
    """By how much ‖J‖ exceeds 0.9 at the last steady state: left alone, such cells learn to come to rest ever more slowly."""
    assert model.layer.solution is not None
    update = lambda h, x: model.layer.cell(x, h)  # noqa: E731
    return torch.relu(sg.penalty.spectral(update, model.layer.solution.value, x, batch_dims=1) - 0.9)


def fit(name: str, cell: nn.Module, steps: int) -> Fit:
    angle = torch.linspace(-3.1416, 3.1416, 60)
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    found = Fit(name, angle, torch.stack([(2 * angle).cos(), (3 * angle).sin()], dim=1))
    model = Curve(cell)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), found.target)
        optimiser.zero_grad()
        (loss + too_large(model, x)).backward()
        optimiser.step()
        assert model.layer.solution is not None
        found.loss.append(loss.item())
        found.steps.append(model.layer.solution.steps)
    exact = gradient(model, "bptt", sg.Picard(max_steps=400, rtol=0), x, found.target)
    found.distance = float((gradient(model, "auto", model.layer.search, x, found.target) - exact).norm() / exact.norm())
    found.curve = model(x).detach()
    print(f"{name}: loss {found.loss[-1]:.2e}, {found.steps[-1]} updates, gradient {found.distance:.1e} from BPTT's")
    return found


def main(small: bool = False) -> list[Fit]:
    torch.manual_seed(0)
    steps = 3 if small else 250
    return [fit("GRU", nn.GRUCell(2, HIDDEN), steps), fit("LSTM", nn.LSTMCell(2, HIDDEN), steps)]


def draw(fits: list[Fit], path: str) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(10, 3), layout="constrained")
    for axis, one in zip(axes, fits, strict=False):
        for part, colour, name in ((0, "#0072B2", "cos 2a"), (1, "#D55E00", "sin 3a")):
            axis.plot(one.angle, one.target[:, part], color=colour, linewidth=4, alpha=0.3, label=name)
            axis.plot(one.angle, one.curve[:, part], color=colour, linestyle="--", linewidth=1.2, label=f"{one.name}: {name}")
        axis.set(title=f"{one.name} at rest", xlabel="angle a", ylabel="output")
        axis.legend(fontsize=7, ncols=2, loc="lower center")
        axis.set_ylim(-1.9, 1.2)
    for one, colour, line in zip(fits, ("#000000", "#009E73"), ("-", "--"), strict=True):
        axes[2].plot(one.loss, color=colour, linestyle=line, label=f"{one.name}, gradient {one.distance:.0e} from BPTT's")
    axes[2].set(title="Training", xlabel="step", ylabel="mean square error", yscale="log")
    axes[2].legend(fontsize=7)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="a few seconds instead of a minute")
