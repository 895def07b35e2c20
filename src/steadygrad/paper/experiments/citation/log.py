"""Looks at a network while it learns: accuracy, motion of the state, adjoint; and once more, closely, when it is trained."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from steadygrad import Picard
from steadygrad.paper.experiments.citation import looking
from steadygrad.paper.experiments.citation.data import Split
from steadygrad.paper.experiments.citation.model import Diffusion, Linear, Network, PublishedGRU, Recurrent
from steadygrad.paper.experiments.citation.training import Answer, Epoch, accuracy, predict
from steadygrad.paper.experiments.methods import short

KEPT = ("losses", "seen", "evaluations", "products", "best_validation", "best", "scores")
"""What a checkpoint has of it."""
STEPS = 100
"""Steps that are followed in the trained network, at most."""


class Logged(Protocol):
    """What is needed of a config."""

    @property
    def forward(self) -> Picard: ...
    @property
    def updates(self) -> int: ...
    @property
    def diagnose(self) -> bool: ...


class TrainingLog:
    """What is seen of the network every few epochs; keeps its scores at the best validation epoch."""

    def __init__(self, config: Logged, network: Network, labels: Tensor, split: Split) -> None:
        self.config, self.network, self.labels, self.split = config, network, labels, split
        self.losses: list[float] = []
        self.seen: dict[str, list[Any]] = {}
        self.evaluations = self.products = 0
        self.best_validation = -1.0
        self.best: dict[str, Any] = {}
        self.scores = torch.empty(0)
        self.final: Answer | None = None

    def count(self, epoch: Epoch) -> None:
        self.losses.append(short(epoch.loss))
        self.evaluations += epoch.answer.evaluations
        solution = epoch.answer.solution
        if solution is not None and solution.adjoint is not None:
            self.products += solution.adjoint.products

    def look(self, number: int, epoch: Epoch | None = None) -> None:
        """Score the weights that the network has now. Without dropout the epoch has the answer already."""
        plain = epoch is not None and isinstance(self.network, (PublishedGRU, Linear))
        found = epoch.answer if plain and epoch is not None else predict(self.network, self.config.forward)
        scores = found.scores.detach()
        validation, test = (accuracy(scores, self.labels, nodes) for nodes in (self.split.validation, self.split.test))
        if validation > self.best_validation:
            self.best_validation, self.scores = validation, scores
            self.best = {"validation_accuracy": validation, "test_accuracy": test, "best_epoch": number}
        adjoint = None if epoch is None or epoch.answer.solution is None else epoch.answer.solution.adjoint
        scaled, relative = (None, None) if found.solution is None else map(short, looking.differences(found.solution))
        entry = {
            "epoch": number,
            "accuracy": short(validation),
            "test": short(test),
            "difference_scaled": scaled,
            "difference_relative": relative,
            "forward_steps": None if found.solution is None else found.solution.steps,
            "adjoint_residual": None if adjoint is None else short(adjoint.residual),
            "adjoint_products": None if adjoint is None else adjoint.products,
        }
        for key, value in entry.items():
            self.seen.setdefault(key, []).append(value)
        self.final = found

    def before(self) -> dict[str, Any]:
        """ρ(J) at the initial weights."""
        return {"spectral_radius_initial": self._radius(predict(self.network, self.config.forward))}

    def after(self) -> dict[str, Any]:
        """What is measured once, of the trained network."""
        if not isinstance(self.network, Recurrent) or self.final is None or self.final.solution is None:
            return {}
        self.network.eval()
        dynamics = self.network.dynamics()
        way = looking.follow(dynamics, min(self.config.updates, STEPS))
        h: Tensor = self.final.solution.value.detach()
        found: dict[str, Any] = {
            "difference": {"scaled": list(map(short, way.scaled)), "relative": list(map(short, way.relative))},
            "spectral_radius": self._radius(self.final),
            "alpha": short(float(self.network.alpha.detach())) if isinstance(self.network, Diffusion) else None,
        }
        if self.config.diagnose and h.isfinite().all():
            b = looking.cotangent(self.network, h, self.labels, self.split)
            found["diagnosis"] = looking.examine(dynamics, h, b)
        return found

    def result(self) -> dict[str, Any]:
        return {
            **self.best,
            "training_loss": self.losses,
            "validation": self.seen,
            "evaluations": self.evaluations,
            "products": self.products,
        }

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in KEPT}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in KEPT:
            setattr(self, name, state[name])

    def _radius(self, found: Answer) -> float | None:
        if not isinstance(self.network, Recurrent) or found.solution is None or not found.solution.value.isfinite().all():
            return None
        self.network.eval()
        return short(looking.spectral_radius(self.network.dynamics(), found.solution.value))
