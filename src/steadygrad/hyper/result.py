"""A hypergradient with what is known about its trustworthiness, and what every way to one gives back before it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steadygrad.diagnose.checks import Dependence
from steadygrad.solution import AdjointSolution
from steadygrad.state import State

Gradients = dict[str, Tensor | None]
"""By name; None where autograd sees no path."""


@dataclass(frozen=True)
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

    def beside(self, other: Estimate) -> Estimate:
        """This estimate with the samples of another; the state, the objective and the dependence are those of this one."""
        return replace(
            self,
            samples=[*self.samples, *other.samples],
            adjoints=[*self.adjoints, *other.adjoints],
            remaining=[*self.remaining, *other.remaining],
        )

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


@dataclass(frozen=True)
class Chosen:
    """A hypergradient with the method that was taken and, unless it was asked for, why; `doubt` says what speaks against it."""

    estimate: Estimate
    method: object
    reason: str = ""
    doubt: str | None = None


@dataclass
class Hypergradient:
    """dL/dθ by name, with what is known about its trustworthiness.

    >>> from steadygrad import hyper
    >>> def step(h, hyper, batch): return 0.5 * h + hyper["a"]  # ends at 2a
    >>> found = hyper.hypergradient(step, {"a": 1.0}, lambda h, hyper: h.sum(), batches=[None], steps=60, state=torch.ones(1),
    ...                             method="auto")
    >>> found.gradients, found.converged, abs(found.remaining) < 1e-6
    ({'a': tensor(2.)}, True, True)
    """

    gradients: dict[str, Tensor]
    """In the shape of each hyperparameter."""
    loss: float
    """The objective after training."""
    state: State = field(repr=False)
    """The state after training."""
    method: str
    """The method that was taken, as code that pastes back."""
    reason: str = ""
    """Why this method, where the choice was left open; empty where the method was asked for."""
    adjoints: tuple[AdjointSolution, ...] = ()
    """The certificates of the adjoint solves, one a sample; none for unrolled and forward mode, which are exact."""
    variance: dict[str, Tensor] | None = None
    """The variance of each gradient, where the method is stochastic and takes several samples."""
    samples: int = 1
    degenerate: dict[str, str] = field(default_factory=dict[str, str])
    """Hyperparameters on which the result does not depend, each with what to do; their gradient is no gradient."""
    residual: float | None = None
    """‖F(h) − h‖ / ‖F(h)‖ of the last step, where the method rests on a steady state."""
    remaining: float | None = None
    """(z − ∂L/∂h)·(F(h) − h) = ∂L/∂h J(I − J)⁻¹ (F(h) − h) ≈ L(h*) − L(h_T): by how much the objective would still change if
    training went on to its end, to first order and as far as z is solved for; over K further steps for a Neumann series of K
    terms. Of implicit methods. Large means that the hypergradient is that of another state; small does not prove the opposite."""
    agreement: float | None = None
    """(dL(h_T)/dθ · g) / ‖g‖², the exact derivative along the hypergradient g over g's own claim; 1 is right, 0 or less points
    the wrong way. With `check=True`."""

    @property
    def adjoint(self) -> AdjointSolution | None:
        """The worst of the certificates."""
        return max(self.adjoints, key=lambda a: a.residual, default=None)

    @property
    def converged(self) -> bool:
        """Whether all adjoint equations were solved to their tolerance; true for methods that solve none."""
        return all(bool(a.converged) for a in self.adjoints)
