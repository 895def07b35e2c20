"""A transformer block at equilibrium: which of these symbols occur twice?

z ← norm(x + attention(z) + mlp(z)): one block whose depth is a solve. Every token has to look at all others.
torch's own attention is used as it is; a penalty on ‖J‖ keeps the block from running away, and
`diagnose_every` keeps watch over ρ(J).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import steadygrad as sg

SYMBOLS, LENGTH, WIDTH = 16, 10, 32


class Block(nn.Module):
    """cell(x, z): x are the embedded symbols, z the state of every token. The shares keep the map close to a contraction."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Linear(2 * WIDTH, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        mixed, _ = self.attention(z, z, z, need_weights=False)
        return self.norm(x + 0.5 * mixed + 0.5 * self.mlp(z))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, WIDTH)
        self.layer = sg.Equilibrium(
            Block(), initial=torch.zeros_like, forward=sg.Anderson(max_steps=100, rtol=1e-4), batch_dims=1, diagnose_every=25
        )
        self.decode = nn.Linear(WIDTH, 1)

    def forward(self, symbols: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, and the embedded symbols and the state for the penalty."""
        x = self.embed(symbols)
        z = self.layer(x)
        return self.decode(z).squeeze(-1), x, z

    def too_large(self, x: Tensor, z: Tensor, seed: int) -> Tensor:
        """By how much ‖J‖ exceeds 0.8 at the steady state, of a quarter of the batch."""
        part = slice(None, None, 4)
        update = lambda z, x: self.layer.cell(x, z)  # noqa: E731
        return torch.relu(sg.penalty.spectral(update, z[part].detach(), x[part], batch_dims=1, seed=seed) - 0.8)


def sequences(count: int) -> tuple[Tensor, Tensor]:
    """Symbols, and for each whether it occurs elsewhere in its sequence."""
    symbols = torch.randint(SYMBOLS, (count, LENGTH))
    same = symbols.unsqueeze(1) == symbols.unsqueeze(2)
    return symbols, (same.sum(2) > 1).float()


@dataclass
class Course:
    loss: list[float] = field(default_factory=list[float])
    residual: list[float] = field(default_factory=list[float])
    radius: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    accuracy: float = 0.0


def main(small: bool = False) -> Course:
    torch.manual_seed(0)
    model, course = Model(), Course()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(3 if small else 400):
        symbols, twice = sequences(64)
        logits, x, z = model(symbols)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, twice)
        optimiser.zero_grad()
        (loss + model.too_large(x, z, step)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        assert model.layer.solution is not None
        assert model.layer.solution.adjoint is not None
        course.loss.append(loss.item())
        course.residual.append(model.layer.solution.adjoint.residual)
    course.radius = [(entry.call, entry.spectral_radius) for entry in model.layer.history.entries]
    symbols, twice = sequences(500)
    with torch.no_grad():
        course.accuracy = ((model.eval()(symbols)[0] > 0) == twice.bool()).float().mean().item()
    print(f"{course.accuracy:.1%} of tokens right (always 'once': {1 - twice.mean():.1%}); ", end="")
    print(f"ρ(J) at the end {course.radius[-1][1]:.2f}, worst adjoint residual {max(course.residual):.1e}")
    return course


def draw(course: Course, path: str) -> None:
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(10, 3), layout="constrained")
    left.plot(course.loss, color="#0072B2", linewidth=0.8)
    left.set(title=f"Loss ({course.accuracy:.1%} of tokens right)", xlabel="step", ylabel="cross-entropy", ylim=(0, None))
    middle.plot(*zip(*course.radius, strict=True), color="#D55E00", marker="o", markersize=3)
    middle.axhline(1, color="#555555", linestyle=":", linewidth=1)
    middle.set(title="ρ(J), by diagnose_every=25", xlabel="step", ylabel="spectral radius", ylim=(0, None))
    right.plot(course.residual, color="#009E73", linewidth=0.8)
    right.set(title="The certificate", xlabel="step", ylabel="adjoint residual", yscale="log")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="a few seconds instead of a minute")
