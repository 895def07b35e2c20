"""hypergradient: the gradient of a loss at the end of training with respect to hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from steadygrad.gradient import BPTT, TBPTT, Implicit
from steadygrad.hyper.batches import Batches
from steadygrad.hyper.choice import Terms, choose
from steadygrad.hyper.derivative import broken, broken_at_first, following
from steadygrad.hyper.forward import Forward, agreement, forward
from steadygrad.hyper.implicit import implicit
from steadygrad.hyper.memory import allowed
from steadygrad.hyper.problem import Inner, Objective, Observe, Step
from steadygrad.hyper.replay import replayed
from steadygrad.hyper.resolve import Differentiated, HyperMethod, Samples, asked_for, resolve_samples
from steadygrad.hyper.result import Chosen, Hypergradient
from steadygrad.hyper.training import unrolled
from steadygrad.hyper.trust import disagrees, judged, say
from steadygrad.method import check_count
from steadygrad.solution import OnFailure, SteadyStateError, check_on_failure
from steadygrad.state import State


def hypergradient(
    step: Step,
    hyper: Mapping[str, Any],
    objective: Objective,
    *,
    batches: Any,
    steps: int,
    state: State | None = None,
    method: HyperMethod | None = None,
    memory: float | None = None,
    last: Samples | None = None,
    first: int = 0,
    ongoing: bool = False,
    seed: int | None = None,
    on_failure: OnFailure = "warn",
    observe: Observe | None = None,
    check: bool | None = None,
) -> Hypergradient:
    """Train for `steps` steps and give the gradient of the objective at their end with respect to `hyper`.

    With h_{t+1} = F(h_t, θ; batch_t), F being `step`, L the objective and h_T the end of training, this is dL(h_T)/dθ by

    - None, the default: exact while memory allows, that is "bptt" if the graphs of all steps, measured by the first, fit into
      `memory` bytes (half of what is free, unless it is given), else "forward" for up to four numbers; implicit where they do
      not and training has come to rest, and `BPTT(checkpoints=n)`, with as many as fit, where it has not. Where not even
      these fit, what is not exact is reported. The result has the `method` that was taken, and the `reason`.
    - "bptt", `TBPTT(steps=K)`: back-propagation through all or the last K steps. Exact; memory grows with them.
    - `BPTT(checkpoints=n)`, `BPTT(memory="sqrt")`, `BPTT(memory="log")`: the same gradient as "bptt" in the memory of a few
      states, for up to three times its time: steps are taken again, with the same random draws, on batches made again.
    - "forward": exact over all steps in memory that does not grow with them; work grows with the number of hyperparameters.
    - "auto", "neumann-rbp", "cg-rbp", "rbp", `Implicit(...)`: zᵀ∂F/∂θ, (I − Jᵀ)z = ∂L/∂h, of the last step. Right where
      training has converged, for hyperparameters that move its end point (weight decay, loss and data weights, label smoothing).
      Learning rates and momenta do not: they are named in `degenerate`, and reported as `on_failure` says.

    `step` is `SGD(model, loss)`, `Adam(model, loss)` or any function `step(state, hyper, batch) -> state` (then with `state`, the
    start, and an objective of the state instead of the model). `batches` is a list, a function of the step number, or a
    DataLoader. `last` says on which data an implicit method, if one is taken, does the last step: `Full(batch)`,
    `Average(m)`, `Fresh(m)`; by default the batch itself where all steps share it, else `Average(8)`, of a list no more than it
    has. The objective is one number, or a generator of parts of a sum, of which memory holds one. `first` is the number of the
    first step. `ongoing=True` says that these steps go on with a training that began before, from `state`: then method=None
    takes an implicit method as soon as training is at rest, since its end is meant and not what these few steps did. `seed`
    fixes torch's random draws (dropout, and the order of a DataLoader even if it has a generator of its own) during the call.
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
    >>> found.method, found.reason.split(":")[0]
    ('BPTT()', 'exact')
    """
    check_on_failure(on_failure)
    check_count("steps", steps, least=1)
    if torch.is_inference_mode_enabled():
        raise SteadyStateError("a hypergradient was asked for under torch.inference_mode(), which forbids gradients; leave it.")
    source = Batches.of(batches)
    resolved = asked_for(method, memory, last, source)
    inner = Inner.of(step, hyper, objective, replace(source, first=first, steps=steps), steps, state)
    inner = replace(inner, observe=observe)
    if resolved is None:
        terms = Terms(allowed(memory, inner.first.device), ongoing, last, on_failure)
        plan = partial(choose, inner, terms)
    else:
        plan = partial(_taken, inner, resolved, resolve_samples(resolved, last, source), on_failure)
    if check is not False:
        say(broken(inner) if check else broken_at_first(inner), on_failure)
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        random = torch.get_rng_state()
        chosen = plan()
    found = judged(inner, chosen, on_failure)
    say(following(inner, found.state), on_failure)
    if not check:
        return found
    agreed = agreement(inner, found.gradients, random)
    say(disagrees(agreed), on_failure)
    return replace(found, agreement=agreed)


def _taken(inner: Inner, method: Differentiated, samples: Samples, on_failure: OnFailure) -> Chosen:
    """By the method that the caller named."""
    if isinstance(method, Implicit):
        estimate = implicit(inner, method, samples, on_failure)
    elif isinstance(method, Forward):
        estimate = forward(inner)
    elif isinstance(method, BPTT) and method.recomputes:
        return replayed(inner, method)
    else:
        estimate = unrolled(inner, method.steps if isinstance(method, TBPTT) else None)
    return Chosen(estimate, method)
