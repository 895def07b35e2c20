"""What is tuned: the network, its training as a map F, the hyperparameters, and the meta loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from steadygrad import hyper
from steadygrad.hyper.problem import Hyper
from steadygrad.paper.experiments.hyperopt.data import CLASSES, Batch, Digits, Shuffled, batches, digits
from steadygrad.state import State

WIDTH = 50
SCALE = math.exp(-3)
PIXELS = 784
PART = 1000
"""Images of the meta loss whose graph is in memory at a time."""
Mode = Literal["as-published", "corrected"]
Samples = Literal["full", "average", "fresh", "step"]


class Described(Protocol):
    """What is needed of a config."""

    @property
    def mode(self) -> Mode: ...
    @property
    def seed(self) -> int: ...
    @property
    def shuffle(self) -> bool: ...
    @property
    def images(self) -> int: ...
    @property
    def held_out(self) -> int: ...
    @property
    def wrong(self) -> float: ...
    @property
    def batch(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def rate(self) -> float: ...
    @property
    def momentum(self) -> float: ...
    @property
    def decay(self) -> float: ...


def network(layers: int, seed: int) -> nn.Sequential:
    """784 pixels, hidden layers of 50 tanh units, 10 classes; weights and biases from N(0, 1)·e⁻³, as released."""
    if layers < 0:
        raise ValueError(f"layers must be 0 or more; got {layers}.")
    sizes = [PIXELS, *[WIDTH] * layers, CLASSES]
    parts: list[nn.Module] = []
    for rows, columns in pairwise(sizes):
        parts += [nn.Linear(rows, columns), nn.Tanh()]
    net = nn.Sequential(*parts[:-1])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(SCALE * torch.randn(parameter.shape, generator=generator))
    return net


def training_loss(model: nn.Module, batch: Batch, values: Hyper) -> Tensor:
    """Cross-entropy; where each training image has a weight, with that."""
    if "weight" not in values:
        return cross_entropy(model(batch[0]), batch[1])
    return (values["weight"] * cross_entropy(model(batch[0]), batch[1], reduction="none")).mean()


@dataclass(frozen=True)
class Problem:
    """Training of one network, ready for `hyper.hypergradient` and `hyper.tune`."""

    digits: Digits
    step: hyper.SGD
    batches: list[Batch] | Shuffled
    start: Mapping[str, hyper.Log | hyper.Logit]
    """The hyperparameters with their parametrisation, where tuning begins."""

    @classmethod
    def of(cls, config: Described) -> Problem:
        data = digits(config.images, config.held_out, config.wrong, config.seed)
        net = network(config.layers, config.seed)
        step = hyper.SGD(net, training_loss, rate=config.rate, momentum=config.momentum)
        if config.mode == "as-published":
            start = {"rate": hyper.Log(step.per_tensor(config.rate)), "momentum": hyper.Logit(step.per_tensor(config.momentum))}
        else:
            weight = torch.ones(config.images)
            start = {"decay": hyper.Log(step.per_tensor(config.decay)), "weight": hyper.Log(weight)}
        parts = batches(data.train, config.batch)
        shuffled = config.shuffle and config.batch
        return cls(data, step, Shuffled(data.train, config.batch, config.seed) if shuffled else parts, start)

    def batch(self, t: int) -> Batch:
        """That of step t."""
        return self.batches(t) if isinstance(self.batches, Shuffled) else self.batches[t % len(self.batches)]

    def values(self) -> dict[str, Tensor]:
        """The hyperparameters at the start."""
        return {name: constraint.value for name, constraint in self.start.items()}

    def objective(self, model: nn.Module, _: Hyper) -> Iterator[Tensor]:
        """The meta loss: on the validation images, or, as published, on all training images. In parts, to save memory."""
        images, labels = self.digits.train if self.digits.validation is None else self.digits.validation
        for x, y in zip(images.split(PART), labels.split(PART), strict=True):
            yield len(y) / len(labels) * cross_entropy(model(x), y)

    def last(self, kind: Samples) -> hyper.Full | hyper.Average | hyper.Fresh | hyper.Last:
        """On which data an implicit method takes the last step."""
        match kind:
            case "full":
                return hyper.Full(self.digits.train)
            case "average":
                return hyper.Average(min(AVERAGED, len(self.batches)))
            case "fresh":
                return hyper.Fresh(AVERAGED)
            case "step":
                return hyper.Last()

    @torch.no_grad()
    def test(self, state: State) -> tuple[float, float] | None:
        """Loss and accuracy on the test images, where there are some."""
        if self.digits.test is None:
            return None
        images, labels = self.digits.test
        scores: Any = self.step.evaluate(lambda model, _: model(images), state, {})
        return cross_entropy(scores, labels).item(), (scores.argmax(1) == labels).double().mean().item()


AVERAGED = 5
"""Mini-batches of `average`, and series of `fresh`."""


def free(gradients: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Tensor:
    """dL/du of the free numbers u behind the hyperparameters (log rates and decays, logits of momenta), as one vector."""
    return torch.cat([gradients[name] * _slope(name, values[name]) for name in sorted(gradients)])


def _slope(name: str, value: Tensor) -> Tensor:
    """dθ/du of a hyperparameter."""
    return value * (1 - value) if name == "momentum" else value
