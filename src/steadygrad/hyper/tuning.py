"""tune: gradient descent on hyperparameters, which survives NaN and being killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from steadygrad.hyper.bar import Bar
from steadygrad.hyper.batches import Batches
from steadygrad.hyper.constraints import Parametrised
from steadygrad.hyper.derivative import broken_at_first
from steadygrad.hyper.gradient import hypergradient
from steadygrad.hyper.history import MetaStep, Tuning
from steadygrad.hyper.memory import allowed
from steadygrad.hyper.objective import value_of
from steadygrad.hyper.problem import Inner, Objective, Split, Step, start_of
from steadygrad.hyper.resolve import HyperMethod, Samples, asked_for
from steadygrad.hyper.result import Hypergradient
from steadygrad.hyper.trust import say
from steadygrad.hyper.tuner import Outer, Tuner
from steadygrad.method import check_callable, check_count
from steadygrad.solution import OnFailure, check_on_failure
from steadygrad.state import State


def tune(
    step: Step,
    hyper: Mapping[str, Any],
    objective: Objective,
    *,
    batches: Any,
    steps: int,
    meta_steps: int = 50,
    method: HyperMethod | None = None,
    memory: float | None = None,
    last: Samples | None = None,
    outer: Outer = lambda parameters: torch.optim.Adam(parameters, lr=0.05),
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
    state: State | None = None,
    continued: bool = False,
    validation: Objective | None = None,
    patience: int | None = None,
    checkpoint: str | Path | None = None,
    seed: int | None = 0,
    progress: bool = True,
    on_failure: OnFailure = "warn",
    callback: Callable[[MetaStep, Hypergradient], None] | None = None,
) -> Tuning:
    """Lower the objective after training by gradient steps on the hyperparameters: θ ← θ − η dL(h_T(θ))/dθ.

    Each meta step trains for `steps` steps, takes the `hypergradient` by `method` (with `memory` and `last`, see there), and
    lets the `outer` optimiser, made by a function of its parameters, move the free numbers behind the hyperparameters: `hyper`
    maps names to `Log(1e-3)`, `Logit(0.9)`, `Softplus(1.0)`, `Free(0.0)` or plain values. `schedule` makes a learning-rate
    scheduler of it.

    Training starts from the same network (`state`, or the model as it is) every time, or goes on from where the last meta step
    ended with `continued=True`. That is cheaper, and right for implicit methods, whose gradient depends on the end only; one
    through the steps sees no further than the steps of one meta step. `seed` fixes torch's random draws in every meta step
    alike; None draws anew.

    The result has the hyperparameters with the lowest `validation` loss (the objective unless another function is given); with
    `continued=True` the last ones, since losses of a network that trains on do not compare them, and `best` has the lowest
    (see `Tuning`). With `patience`, the tuning ends after that many meta steps without an improvement. A step whose training,
    loss or gradient is not finite is taken back and halved, and the history says so. With `checkpoint`, a file, every meta step
    is saved; the same call again goes on where it was killed, bit for bit. (A DataLoader is read from its start every time.)

    Cost: meta_steps × (steps of training + one hypergradient). Bengio 2000; Maclaurin et al. 2015; Liao et al. 2018.

    >>> import steadygrad.hyper as hyper
    >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [3.0]])
    >>> def loss(model, batch, hyper): return (model(x) - y).square().mean()
    >>> step = hyper.SGD(torch.nn.Linear(1, 1, bias=False), loss, rate=0.2)
    >>> found = tune(step, {"decay": hyper.Log(0.1)}, lambda model, hyper: (model(x) - x).square().mean(),
    ...              batches=[None], steps=30, progress=False, outer=lambda p: torch.optim.Adam(p, lr=0.3))
    >>> round(found.hyper["decay"].item(), 1), found.loss < 1e-4  # w = 7/(5 + decay) = 1
    (2.0, True)
    """
    check_on_failure(on_failure)
    check_count("steps", steps, least=1)
    check_count("meta_steps", meta_steps, least=1)
    if patience is not None:
        check_count("patience", patience, least=1)
    for name, function in {"validation": validation, "callback": callback}.items():
        if function is not None:
            check_callable(name, function)
    resolved = asked_for(method, memory, last, Batches.of(batches))
    start = start_of(step, state)
    like = Split.of(start, step).part(start)[0][0]  # plain numbers get its dtype
    run = Tuner(
        parametrised=Parametrised(hyper, like),
        state=start,
        path=None if checkpoint is None else Path(checkpoint),
        continued=continued,
        patience=patience,
        memory=allowed(memory, like.device),
    )
    choices = {"method": repr(resolved), "memory": memory, "last": repr(last)}
    run.begin(outer, schedule, {**choices, "steps": steps, "continued": continued, "seed": seed})

    def attempt() -> tuple[Hypergradient, float]:
        values = run.parametrised.values()
        found = hypergradient(
            step, values, objective, batches=batches, steps=steps, state=run.state, method=resolved, last=last,
            memory=run.memory if resolved is None else None, ongoing=continued,
            first=run.done * steps if continued else 0, seed=seed, on_failure=on_failure, check=False,
        )  # fmt: skip
        if validation is None:
            return found, found.loss
        with torch.no_grad():
            inner = Inner.of(step, values, validation, Batches.of(batches), steps, run.state)
            return found, value_of(inner, found.state, inner.hyper).item()

    if not run.history:
        first = Inner.of(step, run.parametrised.values(), objective, Batches.of(batches), steps, run.state)
        say(broken_at_first(first), on_failure)
    with Bar(meta_steps, run.done, progress) as bar:
        while run.done < meta_steps and not run.stopped:
            run.meta_step(attempt, bar, callback, on_failure)
    return run.result()
