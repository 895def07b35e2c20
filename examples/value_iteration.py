"""Value iteration as the update: what does somebody want who walks like this?

On a grid with walls the value of a place obeys V = F(V), F(V)(s) = τ log Σₐ exp((r(s) + γ V(next(s, a))) /
τ): soft value iteration, a contraction with ρ(J) ≤ γ. Walkers are seen; the reward r of every place is
learned so that the walks are likely (inverse reinforcement learning). At γ = 0.95 some 200 iterations would
have to be kept for BPTT; here one is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import steadygrad as sg

SIDE, DISCOUNT, TEMPERATURE = 9, 0.95, 0.3
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))


def landscape() -> tuple[Tensor, Tensor]:
    """Walls, and the reward that the walkers know."""
    walls = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    walls[2:7, 4] = True
    walls[6, 1:4] = True
    reward = torch.full((SIDE, SIDE), -0.1, dtype=torch.float64)
    reward[1, 7], reward[7, 2], reward[3, 2] = 1.0, 0.6, -0.8
    return walls, reward


def neighbours(walls: Tensor) -> Tensor:
    """(places, moves): where each move leads; walls and the edge throw back."""
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    out = []
    for down, right in MOVES:
        row, column = (rows + down).clamp(0, SIDE - 1), (columns + right).clamp(0, SIDE - 1)
        there, here = row * SIDE + column, rows * SIDE + columns
        out.append(torch.where(walls[row, column], here, there).flatten())
    return torch.stack(out, dim=1)


def values(reward: Tensor, to: Tensor) -> sg.Solution:
    def update(V: Tensor) -> Tensor:
        return TEMPERATURE * torch.logsumexp((reward.unsqueeze(1) + DISCOUNT * V[to]) / TEMPERATURE, dim=1)

    return sg.steady_state(update, torch.zeros_like(reward), forward=sg.Picard(max_steps=1000, rtol=1e-8))


def habits(V: Tensor, to: Tensor) -> Tensor:
    """log of the probability of each move at each place."""
    return torch.log_softmax(DISCOUNT * V[to] / TEMPERATURE, dim=1)


@dataclass
class Found:
    walls: Tensor
    true: Tensor
    learned: Tensor
    value: Tensor
    loss: list[float]
    correlation: float


def main(small: bool = False) -> Found:
    torch.manual_seed(0)
    walls, true = landscape()
    to, free = neighbours(walls), ~walls.flatten()
    with torch.no_grad():
        chances = habits(values(true.flatten(), to).value, to).exp()
    walks = 50 if small else 2000
    seen = torch.distributions.Multinomial(walks, chances).sample()[free]  # at each free place, how often each move was taken

    reward = torch.zeros(SIDE * SIDE, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([reward], lr=0.05)
    losses, solution = list[float](), None
    for _ in range(5 if small else 150):
        solution = values(reward, to)
        loss = -(seen * habits(solution.value, to)[free]).sum() / seen.sum() + 1e-4 * reward.square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert solution is not None
    assert solution.adjoint is not None
    learned = reward.detach()
    correlation = float(torch.corrcoef(torch.stack([learned[free], true.flatten()[free]]))[0, 1])
    print(
        f"{solution.steps} iterations a solve, {solution.adjoint.products} products a gradient ({solution.adjoint.solver}); ",
        end="",
    )
    print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}; correlation of learned and true reward {correlation:.2f}")
    shape = (SIDE, SIDE)
    return Found(walls, true, learned.view(shape), solution.value.detach().view(shape), losses, correlation)


def draw(found: Found, path: str) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    panels = {
        "True reward": found.true,
        f"Learned (correlation {found.correlation:.2f})": found.learned,
        "Its value V": found.value,
    }
    for axis, (title, field) in zip(axes, panels.items(), strict=True):
        shown = field.clone()
        shown[found.walls] = float("nan")
        image = axis.imshow(shown.numpy(), cmap="cividis")
        axis.set(title=title, xticks=[], yticks=[])
        axis.set_facecolor("#bbbbbb")
        figure.colorbar(image, ax=axis, shrink=0.85)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="fewer walks and steps")
