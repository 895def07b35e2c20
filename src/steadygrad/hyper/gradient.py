"""hypergradient: the gradient of a loss at the end of training with respect to hyperparameters."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from steadygrad.api import SHORTHANDS, resolve_gradient
from steadygrad.gradient import BPTT, TBPTT, Gradient, Implicit
from steadygrad.hyper.batches import Batches
from steadygrad.hyper.derivative import broken, broken_at_first, following
from steadygrad.hyper.estimate import Estimate
from steadygrad.hyper.forward import Forward, forward
from steadygrad.hyper.implicit import implicit
from steadygrad.hyper.problem import Inner, NonfiniteError, Objective, Observe, Step
from steadygrad.hyper.samples import Average, Fresh, Full, Last, Samples
from steadygrad.hyper.trust import agreement, degenerate, disagrees, say, unfinished
from steadygrad.hyper.unrolled import unrolled
from steadygrad.method import check_count
from steadygrad.solution import AdjointSolution, OnFailure, SteadyStateError, check_on_failure
from steadygrad.state import State

Method = str | Gradient | Forward


@dataclass
class Hypergradient:
    """dL/dθ by name, with what is known about its trustworthiness."""

    gradients: dict[str, Tensor]
    """In the shape of each hyperparameter."""
    loss: float
    """The objective after training."""
    state: State = field(repr=False)
    """The state after training."""
    method: str
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


def hypergradient(
    step: Step,
    hyper: Mapping[str, Any],
    objective: Objective,
    *,
    batches: Any,
    steps: int,
    state: State | None = None,
    method: Method = "auto",
    last: Samples | None = None,
    first: int = 0,
    seed: int | None = None,
    on_failure: OnFailure = "warn",
    observe: Observe | None = None,
    check: bool | None = None,
) -> Hypergradient:
    """Train for `steps` steps and give the gradient of the objective at their end with respect to `hyper`.

    With h_{t+1} = F(h_t, θ; batch_t), F being `step`, L the objective and h_T the end of training, this is dL(h_T)/dθ by

    - "bptt", `TBPTT(steps=K)`: back-propagation through all or the last K steps. Exact; memory grows with them.
    - "forward": exact over all steps in memory that does not grow with them; work grows with the number of hyperparameters.
    - "auto", "neumann-rbp", "cg-rbp", "rbp", `Implicit(...)`: zᵀ∂F/∂θ, (I − Jᵀ)z = ∂L/∂h, of the last step. Right where
      training has converged, for hyperparameters that move its end point (weight decay, loss and data weights, label smoothing).
      Learning rates and momenta do not: they are named in `degenerate`, and reported as `on_failure` says.

    `step` is `SGD(model, loss)`, `Adam(model, loss)` or any function `step(state, hyper, batch) -> state` (then with `state`, the
    start, and an objective of the state instead of the model). `batches` is a list, a function of the step number, or a
    DataLoader. `last` says on which data an implicit method takes the last step: `Full(batch)`, `Average(m)`, `Fresh(m)`; by
    default the batch itself where all steps share it, else `Average(8)`, of a list no more than it has. The objective is one
    number, or a generator of parts of a sum, of which memory holds one. `first` is the number of the first step; `seed` fixes
    torch's random draws (dropout, and the order of a DataLoader even if it has a generator of its own) during the call.
    `observe(t, state)` sees every state on the way. `check=True` trains once more and compares the result with the exact
    derivative along it (see `Hypergradient.agreement`), in about twice the time of BPTT. The derivative of the step is compared
    with differences, once for every step, again with `check=True` and never with `check=False`.

    Reference: Liao et al. 2018, section 5.3; Maclaurin et al. 2015; Franceschi et al. 2017; Lorraine et al. 2020.

    >>> import steadygrad.hyper as hyper
    >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [3.0]])
    >>> def loss(model, batch, hyper): return (model(x) - y).square().mean()
    >>> step = hyper.SGD(torch.nn.Linear(1, 1, bias=False), loss, rate=0.2)
    >>> def validation(model, hyper): return (model(x) - 1).square().mean()
    >>> found = hypergradient(step, {"decay": 0.5}, validation, batches=[None], steps=100)
    >>> round(found.gradients["decay"].item(), 4), found.converged  # w = 7/(5 + decay) in closed form
    (-0.7784, True)
    """
    check_on_failure(on_failure)
    check_count("steps", steps, least=1)
    if torch.is_inference_mode_enabled():
        raise SteadyStateError("a hypergradient was asked for under torch.inference_mode(), which forbids gradients; leave it.")
    resolved = resolve_method(method)
    source = Batches.of(batches)
    inner = Inner.of(step, hyper, objective, replace(source, first=first, steps=steps), steps, state)
    inner = replace(inner, observe=observe)
    chosen = _samples(resolved, last, source)
    if check is not False:
        say(broken(inner) if check else broken_at_first(inner), on_failure)
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        random = torch.get_rng_state()
        estimate = _estimate(inner, resolved, chosen, on_failure)
    found = _judged(inner, estimate, resolved, on_failure)
    say(following(inner, found.state), on_failure)
    if check:
        found.agreement = agreement(inner, found.gradients, random)
        say(disagrees(found.agreement), on_failure)
    return found


def resolve_method(method: Method) -> Implicit | BPTT | TBPTT | Forward:
    """The method that a shorthand stands for."""
    if method == "forward" or isinstance(method, Forward):
        return Forward()
    if isinstance(method, str) and method not in SHORTHANDS:
        known = ["forward", *SHORTHANDS]
        near = difflib.get_close_matches(method.lower(), known, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown method {method!r}.{hint} Known: {', '.join(known)}.")
    resolved = resolve_gradient(method)
    if not isinstance(resolved, (Implicit, BPTT, TBPTT)):
        raise ValueError(
            f'{resolved!r} is not available for hypergradients; use "auto", "forward", "bptt", TBPTT or Implicit(...).'
        )
    return resolved


def _samples(method: Implicit | BPTT | TBPTT | Forward, last: Samples | None, batches: Batches) -> Samples:
    many = batches.distinct
    if last is None:
        return Last() if many == 1 else Average(8 if many is None else min(8, many))
    if not isinstance(last, (Last, Full, Average, Fresh)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"last must be Full(batch), Average(m), Fresh(m) or Last(); got {last!r:.60}.")
    if not isinstance(method, Implicit):
        raise ValueError(
            f"last={last!r} is for implicit methods; {method!r} differentiates the steps as they were and ignores it."
        )
    if isinstance(last, Average) and many is not None and last.count > many:
        raise ValueError(
            f"last=Average({last.count}) takes {last.count} batches, but batches is a list of {many}: some would count twice "
            f"as if they were new. Take at most Average({many}), or last=Full(batch) with all data; or, if the model draws anew "
            "each time (dropout), give a function that cycles: lambda t: data[t % len(data)]."
        )
    return last


def _estimate(inner: Inner, method: Implicit | BPTT | TBPTT | Forward, samples: Samples, on_failure: OnFailure) -> Estimate:
    if isinstance(method, Implicit):
        return implicit(inner, method, samples, on_failure)
    if isinstance(method, Forward):
        return forward(inner)
    return unrolled(inner, method.steps if isinstance(method, TBPTT) else None)


def _judged(inner: Inner, estimate: Estimate, method: Implicit | BPTT | TBPTT | Forward, on_failure: OnFailure) -> Hypergradient:
    """Name what is degenerate, refuse what is not finite, and pack the rest."""
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
    remaining = sum(estimate.remaining) / len(estimate.remaining) if estimate.remaining else None
    for reason in reasons.values():
        say(reason, on_failure)
    if isinstance(method, Implicit) and not method.adjoint.counts:  # a series cut on purpose claims no steady state
        say(unfinished(remaining, loss), on_failure)
    return Hypergradient(
        gradients=gradients,
        loss=loss,
        state=estimate.state,
        method=repr(method),
        adjoints=tuple(estimate.adjoints),
        variance=variance if estimate.stochastic and variance else None,
        samples=len(estimate.samples),
        degenerate=reasons,
        residual=estimate.residual,
        remaining=remaining,
    )
