"""Weight decay for every tensor of a network, by gradient, against the best single one of a grid search.

An MLP learns digits from 200 MNIST images. One weight decay for all of it can be found by a grid search; one for each weight
matrix and bias cannot: the grid grows exponentially. Their gradients cost the same whatever their number. The search by gradient
goes on with one network, so that each of its steps needs a few training steps only, and Neumann-RBP differentiates the last of
them. Then the network is trained anew with what was found, as in the grid. Both searches see the same training and validation
images; the test images are looked at once, at the end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

import steadygrad as sg
from steadygrad import hyper
from steadygrad.paper import datasets

TRAIN, VALIDATION, TEST = 200, 1000, 4000
GRID = [10 ** (-4 + 0.25 * i) for i in range(13)]
STEPS = 300
"""Steps of a whole training."""
META_STEPS, SHORT, TERMS = 25, 40, 20
"""Meta steps of the search by gradient, the training steps of each, and the terms of the Neumann series."""
Batch = tuple[Tensor, Tensor]


def load() -> tuple[Batch, Batch, Batch]:
    """Training, validation and test images, the mean training image subtracted, with their digits."""
    mnist = datasets.mnist()
    images = mnist.images.flatten(1).float() / 255
    images = images - images[:TRAIN].mean(0)
    a, b = TRAIN, TRAIN + VALIDATION
    cuts = (slice(0, a), slice(a, b), slice(b, b + TEST))
    train, validation, test = ((images[cut], mnist.labels[cut]) for cut in cuts)
    return train, validation, test


def loss(model: nn.Module, batch: Batch, hyper: object = None) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


@dataclass(frozen=True)
class Found:
    """What a search found, and what it cost."""

    decay: Tensor
    steps: int
    """Training steps and products with J."""
    seconds: float
    """Of processor time, the training with what was found included."""
    validation: float
    test: float
    accuracy: float


def train(step: hyper.SGD, decay: Tensor, batch: Batch) -> None:
    """A whole training of the model from its start."""
    state = step.initial()
    with torch.no_grad():
        for _ in range(STEPS):
            state = step(state, {"decay": decay}, batch)
    step.load(state)


def new_step(seed: int) -> hyper.SGD:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(784, 50), nn.Tanh(), nn.Linear(50, 10))
    return hyper.SGD(model, loss, rate=1.0, momentum=0.9)


@torch.no_grad()
def judged(model: nn.Module, decay: Tensor, steps: int, start: float, validation: Batch, test: Batch) -> Found:
    seconds = time.process_time() - start
    accuracy = (model(test[0]).argmax(1) == test[1]).double().mean().item()
    return Found(decay, steps, seconds, loss(model, validation).item(), loss(model, test).item(), accuracy)


def by_grid(seed: int, data: tuple[Batch, Batch, Batch]) -> Found:
    """One weight decay for all tensors: the best of the grid."""
    start, best = time.process_time(), None
    for value in GRID:
        step, decay = new_step(seed), torch.tensor(value)
        train(step, decay, data[0])
        found = judged(step.model, decay, STEPS * len(GRID), start, *data[1:])
        if best is None or found.validation < best.validation:
            best = found
    assert best is not None
    return Found(best.decay, best.steps, time.process_time() - start, best.validation, best.test, best.accuracy)


def by_gradient(seed: int, data: tuple[Batch, Batch, Batch]) -> Found:
    """One weight decay a tensor: this is all that it takes."""
    start = time.process_time()
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
    step = new_step(seed)
    train(step, tuning.last["decay"], data[0])
    steps = META_STEPS * (SHORT + TERMS + 1) + STEPS
    return judged(step.model, tuning.last["decay"], steps, start, *data[1:])


def main(seeds: int = 3) -> None:
    torch.set_num_threads(1)
    data = load()
    print(f"{'':<33}{'steps':>6}{'seconds':>9}{'validation loss':>17}{'test loss':>11}{'accuracy':>10}   weight decay")
    for seed in range(seeds):
        searches = {f"grid of {len(GRID)}, one for all": by_grid, "gradient, one a tensor": by_gradient}
        for name, search in searches.items():
            found = search(seed, data)
            decays = " ".join(f"{value:.1e}" for value in found.decay.reshape(-1).tolist())
            cost = f"{found.steps:>6}{found.seconds:>9.1f}"
            print(f"seed {seed}, {name:<25}{cost}{found.validation:>17.4f}{found.test:>11.4f}{found.accuracy:>10.1%}   {decays}")


if __name__ == "__main__":
    main()
