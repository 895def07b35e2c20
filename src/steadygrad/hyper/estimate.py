"""What every way to a hypergradient gives back, before it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadygrad.diagnose.checks import Dependence
from steadygrad.solution import AdjointSolution
from steadygrad.state import State

Gradients = dict[str, Tensor | None]
"""By name; None where autograd sees no path."""


@dataclass
class Estimate:
    """The state after training, the objective there, and one or several samples of its gradient."""

    state: State
    value: Tensor
    samples: list[Gradients]
    adjoints: list[AdjointSolution] = field(default_factory=list[AdjointSolution])
    dependence: dict[str, Dependence] = field(default_factory=dict[str, Dependence])
    """How the steady state depends on each hyperparameter; empty for methods that do not rest on one."""
    residual: float | None = None
    """‖F(h) − h‖ / ‖F(h)‖ of the last step, where the method rests on it."""
    stochastic: bool = False
    remaining: list[float] = field(default_factory=list[float])
    """(z − b)·(F(h) − h), one a sample, where the method rests on a steady state."""

    @property
    def sound(self) -> bool:
        """Whether what the method rests on holds: adjoints solved, and a steady state that moves with every hyperparameter."""
        return all(bool(a.converged) for a in self.adjoints) and all(d.kind == "moves" for d in self.dependence.values())

    @property
    def left(self) -> float | None:
        """The change of the objective that is still to come, the mean of the samples; None where nothing is known of it."""
        return sum(self.remaining) / len(self.remaining) if self.remaining else None

    def mean(self, name: str) -> Tensor | None:
        there = [sample[name] for sample in self.samples]
        found = [grad for grad in there if grad is not None]
        return torch.stack(found).sum(0) / len(there) if found else None

    def variance(self, name: str) -> Tensor | None:
        """The variance of the mean; None with fewer than two samples."""
        found = [grad for sample in self.samples if (grad := sample[name]) is not None]
        if len(found) < 2:
            return None
        return torch.stack(found).var(0) / len(found)
