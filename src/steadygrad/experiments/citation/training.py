"""How a network learns to classify nodes: the gradient method by name, an epoch, and the baseline without a graph."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingTypeStubs]
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, Optimizer

import steadygrad.api as api
from steadygrad.experiments.citation.data import Split
from steadygrad.experiments.citation.model import Network, Recurrent
from steadygrad.fixedpoint import Picard
from steadygrad.gradient import Gradient
from steadygrad.solution import Solution

Method = Literal[
    "baseline",
    "bptt",
    "tbptt",
    "artbp-uniform",
    "artbp-poisson",
    "rbp",
    "cg-rbp",
    "neumann-rbp",
    "auto",
    "appnp",
    "gcn",
]
REFERENCES = ("baseline", "appnp", "gcn")
"""The methods that are other classifiers, not gradients of a steady state."""


@dataclass(frozen=True)
class Schedule:
    """How a network is trained."""

    epochs: int
    rate: float
    momentum: float | None
    """of SGD; None: Adam"""
    weight_decay: float
    forward: Picard
    warm: bool = False
    """Start each solve at the state and adjoint of the last epoch."""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1; got {self.epochs}.")
        if not self.rate > 0:
            raise ValueError(f"rate must be positive; got {self.rate}.")

    def optimiser(self, network: Network) -> Optimizer:
        groups = network.groups(self.weight_decay)
        return Adam(groups, lr=self.rate) if self.momentum is None else SGD(groups, lr=self.rate, momentum=self.momentum)


class Counted:
    """F that counts its calls."""

    def __init__(self, update: Callable[[Tensor], Tensor]) -> None:
        self.update, self.calls = update, 0

    def __call__(self, h: Tensor) -> Tensor:
        self.calls += 1
        return self.update(h)


@dataclass(frozen=True)
class Answer:
    """Scores of all nodes, and the steady state they were read from, if the network has one."""

    scores: Tensor
    solution: Solution | None
    evaluations: int
    """Calls of F."""


def answer(network: Network, forward: Picard, method: str | Gradient = "auto", warm: Solution | None = None) -> Answer:
    """Let the network settle and read it out. A solve that fails says so in the solution: warnings are left to the caller."""
    if not isinstance(network, Recurrent):
        return Answer(network(), None, 0)
    dynamics = network.dynamics()
    update = Counted(dynamics.update)
    solution = api.steady_state(update, dynamics.start, forward=forward, gradient=method, warm=warm, on_failure="ignore")
    return Answer(network.read(solution.value), solution, update.calls)


@torch.no_grad()
def predict(network: Network, forward: Picard) -> Answer:
    """The answer without dropout."""
    was = network.training
    network.eval()
    found = answer(network, forward)
    network.train(was)
    return found


@dataclass(frozen=True)
class Epoch:
    """One epoch after its backward pass and before its step: everything here is of the weights that the network has now."""

    number: int
    """Steps taken so far."""
    loss: float
    """Cross-entropy on the training nodes, with dropout and without penalty."""
    answer: Answer
    seconds: float
    """Forward and backward pass."""


def learn(
    network: Network, labels: Tensor, split: Split, schedule: Schedule, method: Callable[[int], Gradient | None]
) -> Iterator[Epoch]:
    """Train on the whole graph, an epoch a turn. `method(number)` is the gradient method of an epoch, None where the network is
    no recurrent one. Ends early if the loss is not finite."""
    optimiser = schedule.optimiser(network)
    network.train()
    warm = None
    for number in range(schedule.epochs):
        start = time.perf_counter()
        optimiser.zero_grad()
        found = answer(network, schedule.forward, method(number) or "auto", warm)
        loss = cross_entropy(found.scores[split.train], labels[split.train])
        penalty = network.penalty() if isinstance(network, Recurrent) else None
        (loss if penalty is None else loss + penalty).backward()
        yield Epoch(number, loss.item(), found, time.perf_counter() - start)
        if not math.isfinite(loss.item()):
            return
        optimiser.step()
        warm = found.solution if schedule.warm else None


def accuracy(scores: Tensor, labels: Tensor, nodes: Tensor) -> float:
    return float((scores[nodes].argmax(dim=1) == labels[nodes]).double().mean())


def logistic(features: Tensor, labels: Tensor, split: Split) -> Tensor:
    """The paper's baseline, each node alone: logistic regression by scikit-learn. (nodes, classes) probabilities.

    A class without a training node has probability zero.
    """
    x, y = features.numpy(), labels[split.train].numpy()
    scores = np.zeros((len(x), int(labels.max()) + 1), dtype=np.float32)
    classes = np.unique(y)
    if len(classes) == 1:  # nothing to regress on
        scores[:, classes] = 1
    else:
        scores[:, classes] = LogisticRegression(max_iter=1000).fit(x[split.train.numpy()], y).predict_proba(x)
    return torch.from_numpy(scores)
