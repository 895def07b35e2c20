"""A hypergradient with what is known about its trustworthiness."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadygrad.gradient import Implicit
from steadygrad.hyper.choice import Chosen
from steadygrad.hyper.problem import Inner, NonfiniteError
from steadygrad.hyper.trust import degenerate, say, unfinished, unsolved
from steadygrad.solution import AdjointSolution, OnFailure
from steadygrad.state import State


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
    """As code that pastes back."""
    reason: str = ""
    """Why this method, where the choice was left open; empty where the method was asked for."""
    adjoints: tuple[AdjointSolution, ...] = ()
    """The certificates of the adjoint solves, one a sample; none for unrolled and forward mode, which are exact."""
    variance: dict[str, Tensor] | None = None
    """Of the estimate, where it is stochastic and rests on several samples."""
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


def judged(inner: Inner, chosen: Chosen, on_failure: OnFailure) -> Hypergradient:
    """Name what is degenerate, refuse what is not finite, report what speaks against it, and pack the rest."""
    estimate, method = chosen.estimate, chosen.method
    gradients: dict[str, Tensor] = {}
    variance: dict[str, Tensor] = {}
    reasons: dict[str, str] = {}
    for name, value in inner.hyper.items():
        mean = estimate.mean(name)
        gradients[name] = torch.zeros_like(value) if mean is None else mean.to(value.dtype)
        spread = estimate.variance(name)
        if spread is not None:
            variance[name] = spread
        reason = degenerate(name, mean, estimate.dependence.get(name))
        if reason is not None:
            reasons[name] = reason
    wrong = [name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())]
    if wrong:
        raise NonfiniteError(
            f"the hypergradient of {', '.join(wrong)} by {method!r} is not finite. Take fewer steps, or an implicit method."
        )
    loss = estimate.value.item()
    for reason in reasons.values():
        say(reason, on_failure)
    say(chosen.doubt, on_failure)
    if isinstance(method, Implicit) and chosen.doubt is None:
        say(unsolved(estimate.adjoints, cut=method.adjoint.counts), on_failure)
    if isinstance(method, Implicit) and not method.adjoint.counts:  # a series cut on purpose claims no steady state
        say(unfinished(estimate.left, loss), on_failure)
    return Hypergradient(
        gradients=gradients,
        loss=loss,
        state=estimate.state,
        method=repr(method),
        reason=chosen.reason,
        adjoints=tuple(estimate.adjoints),
        variance=variance if estimate.stochastic and variance else None,
        samples=len(estimate.samples),
        degenerate=reasons,
        residual=estimate.residual,
        remaining=estimate.left,
    )
