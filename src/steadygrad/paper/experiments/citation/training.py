"""How a network learns to classify nodes: the gradient method by name, an epoch, and the baseline without a graph."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, Optimizer

import steadygrad as sg
from steadygrad import Picard, Solution
from steadygrad.paper.experiments.citation.data import Split
from steadygrad.paper.experiments.citation.model import Network, Recurrent
from steadygrad.paper.experiments.methods import Gradient, onward

CitationMethod = Literal[
    "baseline",
    "linear",
    "bptt",
    "bptt-sqrt",
    "bptt-log",
    "tbptt",
    "artbp-uniform",
    "artbp-poisson",
    "rbp-uniform",
    "cg-rbp",
    "neumann-rbp",
    "auto",
    "appnp",
    "gcn",
]
REFERENCES = ("baseline", "linear", "appnp", "gcn")
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
    previous: bool = False
    """Whether implicit methods linearise at h_{T−1}, see `answer`."""

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
    update: Counted | None = None

    @property
    def evaluations(self) -> int:
        """Calls of F until now: after a backward pass with the steps that it took again."""
        return 0 if self.update is None else self.update.calls


def answer(
    network: Network,
    forward: Picard,
    method: str | Gradient = "auto",
    warm: Solution | None = None,
    previous: bool = False,
) -> Answer:
    """Let the network settle and read it out. A solve that fails says so in the solution: warnings are left to the caller.

    `previous`: the solution of an implicit method is h_{T−1}, at which it takes J, and h_T is read out, whose cotangent it
    gets: Listing 1 of Liao et al. 2018 and their code.
    """
    if not isinstance(network, Recurrent):
        return Answer(network(), None)
    dynamics = network.dynamics()
    update = Counted(dynamics.update)
    previous = previous and isinstance(method, sg.Implicit)
    forward = replace(forward, max_steps=forward.max_steps - previous)
    solution = sg.steady_state(update, dynamics.start, forward=forward, gradient=method, warm=warm, on_failure="ignore")
    h = onward(solution.value, update) if previous else solution.value
    return Answer(network.read(h), solution, update)


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


class Learning:
    """Train on the whole graph, an epoch a turn of its iterator. Ends early if the loss is not finite.

    `method(number)` is the gradient method of an epoch, None where the network is no recurrent one. An epoch is handed out before
    its step; after `step()` training can be saved, and go on in another process (not with warm starts).
    """

    def __init__(
        self, network: Network, labels: Tensor, split: Split, schedule: Schedule, method: Callable[[int], Gradient | None]
    ) -> None:
        self.network, self.labels, self.split, self.schedule, self.method = network, labels, split, schedule, method
        self.optimiser = schedule.optimiser(network)
        self.number = 0
        self._due = False

    def __iter__(self) -> Iterator[Epoch]:
        self.network.train()
        warm = None
        while self.number < self.schedule.epochs:
            start = time.perf_counter()
            self.optimiser.zero_grad()
            method, schedule = self.method(self.number) or "auto", self.schedule
            found = answer(self.network, schedule.forward, method, warm, schedule.previous)
            loss = cross_entropy(found.scores[self.split.train], self.labels[self.split.train])
            penalty = self.network.penalty() if isinstance(self.network, Recurrent) else None
            (loss if penalty is None else loss + penalty).backward()
            self._due = True
            yield Epoch(self.number, loss.item(), found, time.perf_counter() - start)
            if not math.isfinite(loss.item()):
                return
            self.step()
            warm = found.solution if self.schedule.warm else None

    def step(self) -> None:
        """Take the step of the epoch that was handed out, unless it is taken."""
        if self._due:
            self.optimiser.step()
            self.number, self._due = self.number + 1, False

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number, "network": self.network.state_dict(), "optimiser": self.optimiser.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state["number"]
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])


def accuracy(scores: Tensor, labels: Tensor, nodes: Tensor) -> float:
    return float((scores[nodes].argmax(dim=1) == labels[nodes]).double().mean())


def logistic(features: Tensor, labels: Tensor, split: Split) -> Tensor:
    """A baseline, each node alone: logistic regression by scikit-learn, to convergence. (nodes, classes) probabilities.

    A class without a training node has probability zero.
    """
    # scikit-learn takes longer to import than torch; the command line would wait for it.
    from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingTypeStubs]

    x, y = features.numpy(), labels[split.train].numpy()
    scores = np.zeros((len(x), int(labels.max()) + 1), dtype=np.float32)
    classes = np.unique(y)
    if len(classes) == 1:  # nothing to regress on
        scores[:, classes] = 1
    else:
        scores[:, classes] = LogisticRegression(max_iter=1000).fit(x[split.train.numpy()], y).predict_proba(x)
    return torch.from_numpy(scores)
