"""Weight decay for every tensor of a network, by gradient, against the best single one of a grid search.

An MLP learns digits from 200 MNIST images. One weight decay for all of it can be found by a grid search; one for each weight
matrix and bias cannot: the grid grows exponentially, their gradients cost the same whatever their number. The search by gradient
goes on with one network, a few training steps a turn, and Neumann-RBP differentiates the last of them; then the network is
trained anew with what was found, as in the grid. The test images are looked at once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

import steadygrad as sg
from steadygrad import hyper

TRAIN, VALIDATION, TEST = 200, 1000, 4000
GRID = [10 ** (-4 + 0.25 * i) for i in range(13)]
STEPS = 300
"""Steps of a whole training."""
META_STEPS, SHORT, TERMS = 25, 40, 20
"""Meta steps of the search by gradient, the training steps of each, and the terms of the Neumann series."""
Batch = tuple[Tensor, Tensor]


def load() -> list[Batch]:
    """Training, validation and test images, the mean training image subtracted, with their digits."""
    mnist = sg.datasets.mnist()
    images = mnist.images.flatten(1).float() / 255
    images = images - images[:TRAIN].mean(0)
    parts = [TRAIN, VALIDATION, TEST]
    return list(zip(images[: sum(parts)].split(parts), mnist.labels[: sum(parts)].split(parts), strict=True))


def loss(model: nn.Module, batch: Batch, hyper: object = None) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


@dataclass(frozen=True)
class Found:
    """What a search found, and what it cost: training steps and products with J."""

    decay: Tensor
    steps: int
    validation: float
    test: float
    accuracy: float


def new_step(seed: int) -> hyper.SGD:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(784, 50), nn.Tanh(), nn.Linear(50, 10))
    return hyper.SGD(model, loss, rate=1.0, momentum=0.9)


@torch.no_grad()
def trained(seed: int, decay: Tensor, steps: int, data: list[Batch]) -> Found:
    """A whole training with this decay, which it took so many steps to find."""
    step = new_step(seed)
    state = step.initial()
    for _ in range(STEPS):
        state = step(state, {"decay": decay}, data[0])
    step.load(state)
    accuracy = (step.model(data[2][0]).argmax(1) == data[2][1]).double().mean().item()
    return Found(decay, steps, loss(step.model, data[1]).item(), loss(step.model, data[2]).item(), accuracy)


def by_grid(seed: int, data: list[Batch]) -> Found:
    """One weight decay for all tensors: the best of the grid."""
    found = [trained(seed, torch.tensor(value), STEPS * len(GRID), data) for value in GRID]
    return min(found, key=lambda one: one.validation)


def by_gradient(seed: int, data: list[Batch]) -> Found:
    """One weight decay a tensor: this is all that it takes."""
    step = new_step(seed)
    tuning = hyper.tune(
        step,
        {"decay": hyper.Log(step.per_tensor(1e-3))},
        lambda model, _: loss(model, data[1]),
        batches=[data[0]],
        steps=SHORT,
        meta_steps=META_STEPS,
        method=sg.Implicit(sg.Neumann(steps=TERMS)),
        continued=True,
        outer=lambda parameters: torch.optim.Adam(parameters, lr=0.3),
        progress=False,
        on_failure="ignore",  # a truncated series, and knowingly so
    )
    return trained(seed, tuning.last["decay"], META_STEPS * (SHORT + TERMS + 1) + STEPS, data)


def main(small: bool = False) -> dict[str, list[Found]]:
    torch.set_num_threads(1)
    data, searches = load(), {f"grid of {len(GRID)}, one for all": by_grid, "gradient, one a tensor": by_gradient}
    results: dict[str, list[Found]] = {name: [] for name in searches}
    print(f"{'':<33}{'steps':>6}{'validation loss':>17}{'test loss':>11}{'accuracy':>10}   weight decay")
    for seed in range(1 if small else 3):
        for name, search in searches.items():
            found = search(seed, data)
            results[name].append(found)
            decays = " ".join(f"{value:.1e}" for value in found.decay.reshape(-1).tolist())
            numbers = f"{found.steps:>6}{found.validation:>17.4f}{found.test:>11.4f}{found.accuracy:>10.1%}"
            print(f"seed {seed}, {name:<25}{numbers}   {decays}")
    return results


def draw(results: dict[str, list[Found]], path: str) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
    for (name, found), colour, marker in zip(results.items(), ("#D55E00", "#0072B2"), "so", strict=True):
        axes[0].plot([one.test for one in found], marker, color=colour, label=name)
        axes[1].plot([one.steps for one in found], marker, color=colour)
    axes[0].set(title="Loss on the test images", xlabel="seed", xticks=range(len(found)))
    axes[1].set(title="Training steps and products spent", xlabel="seed", xticks=range(len(found)), ylim=(0, None))
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="one seed instead of three")
