"""Which way to a hypergradient, where the caller leaves that open: by what is right and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from steadygrad.gradient import BPTT, Implicit
from steadygrad.hyper.forward import Forward, forward
from steadygrad.hyper.implicit import implicit_at
from steadygrad.hyper.memory import Kept, readable
from steadygrad.hyper.problem import Inner
from steadygrad.hyper.replay import Mark, Replay, affordable, size_of
from steadygrad.hyper.resolve import AVERAGED, Average, Last, Samples
from steadygrad.hyper.rest import Rest, Travel
from steadygrad.hyper.result import Chosen, Estimate
from steadygrad.hyper.training import See, Training
from steadygrad.hyper.trust import unfinished
from steadygrad.linear import Auto, Neumann
from steadygrad.solution import OnFailure, magnitude

FEW = 4
"""Numbers among the hyperparameters up to which forward mode is taken where BPTT does not fit: twice BPTT's time (a small CNN
on digits, 90 steps: 3.3 times with six)."""
TERMS = 50
"""Terms of the Neumann series that stands for a training that is neither at rest nor fits in any way. On that CNN, with 90 and
300 steps, full batches and small ones, 50 terms were as near to BPTT as TBPTT(50), without its memory."""


@dataclass(frozen=True)
class Terms:
    """What a choice rests on, besides the training itself: what the caller allows and asks for."""

    memory: float
    """Bytes that graphs may take."""
    ongoing: bool
    """Whether the steps go on with a training that began before: then its end is meant, as soon as there is one."""
    last: Samples | None
    """On which data an implicit method takes the last step; None for what is right here."""
    on_failure: OnFailure


def choose(inner: Inner, terms: Terms) -> Chosen:
    """Train, and differentiate by the first of these that can be had.

    1. BPTT, exact, while the graphs fit: the bytes of the first step's, measured, times the steps.
    2. Forward mode, exact, for at most `FEW` numbers.
    3. An implicit method, right where training has come to rest.
    4. BPTT with as many checkpoints as fit, exact.
    5. `_nothing_fits`, which is not exact, and says so.

    Of an ongoing training the end is meant and not the few steps at hand, so there 3 comes first. Training runs once, except
    for 2, which starts again after the first step.
    """
    random = torch.get_rng_state()
    training = Training(inner, inner.batches.stream(recall=True))
    start = Mark.of(inner.state, training.stream)
    training.read()
    if inner.trainer is None:
        training.attach()  # so that the graph of the first step is as large as the others'
    with Kept() as kept:
        training.take(graph=True)
    size = max(1, kept.bytes())
    price = f"the graphs of {inner.steps} steps take about {readable(size * inner.steps)}, with {readable(terms.memory)} allowed"
    fits = inner.steps == 1 or size * inner.steps <= terms.memory  # no method takes less than the graph of one step
    if not fits and sum(value.numel() for value in inner.hyper.values()) <= FEW:
        del training
        torch.set_rng_state(random)
        return Chosen(forward(inner), Forward(), f"exact, one number after the other: {price}")
    training.show()
    if not fits:
        return _beyond_memory(training, terms, price, affordable(inner.steps, terms.memory, size, size_of(inner.state)), start)
    if terms.ongoing and inner.steps > 2:
        return _end_or_steps(training, terms, price)
    training.go_on(inner.steps, graph=True)
    return Chosen(training.estimate(), BPTT(), f"exact: {price}")


def _watched(training: Training, graph: bool, see: See | None = None) -> Rest:
    """On until one step is left, with a graph or without, and how far from rest that is."""
    inner = training.inner
    travel = Travel(inner, inner.steps - 1)
    travel.see(0, inner.state, training.batch)
    while training.done < inner.steps - 1:
        training.read(see)
        travel.see(training.done, training.state, training.batch)
        training.take(graph)
        training.show()
    return travel.rest(training.state)


def _end_or_steps(training: Training, terms: Terms, price: str) -> Chosen:
    """Steps of an ongoing training whose graphs fit: its end, where it has come to one that can be differentiated."""
    rest = _watched(training, graph=True)
    if not rest.state:
        training.go_on(training.inner.steps, graph=True)
        return Chosen(training.estimate(), BPTT(), f"exact for these steps; training has not come to rest, and {price}")
    found = _implicit(training, Implicit(Auto()), terms)
    if found.sound and unfinished(found.left, found.value.item()) is None:
        return Chosen(found, Implicit(Auto()), _at_rest(rest))
    training.take(graph=True)  # at rest all steps have the same batch; the stream may be past it
    reason = f"exact for these steps; training is nearly at rest, but its end could not be differentiated well, and {price}"
    return Chosen(training.estimate(), BPTT(), reason)


def _beyond_memory(training: Training, terms: Terms, price: str, checkpoints: BPTT | None, start: Mark) -> Chosen:
    """A training whose graphs do not fit: its end, if it comes to rest in time, else all steps, by the states that fit."""
    steps = training.inner.steps
    replay = None if checkpoints is None else Replay(training.inner, checkpoints.plan(steps, known=True), start)
    training.forget()
    rest = _watched(training, graph=False, see=None if replay is None else replay.see)
    if rest.derivative or (terms.ongoing and rest.state):
        return Chosen(_implicit(training, Implicit(Auto()), terms), Implicit(Auto()), f"{_at_rest(rest)}, and {price}")
    if checkpoints is None or replay is None:
        return _nothing_fits(training, terms, price)
    training.go_on(steps, see=replay.see)
    reason = f"exact, taking steps again: training has not come to rest, and {price}"
    return Chosen(replay.estimate(training.detached()), checkpoints, reason, replay.doubt)


def _nothing_fits(training: Training, terms: Terms, price: str) -> Chosen:
    """A training that is not at rest, and not even a few of its states fit: a Neumann series, not exact and said to be so."""
    method = Implicit(Neumann(steps=TERMS))
    what = f"{TERMS} terms of a Neumann series at the end of {training.inner.steps} steps"
    reason = f"not exact: training has not come to rest, and {price}"
    return Chosen(_implicit(training, method, terms), method, reason, _DOUBT.format(what=what, price=price))


_DOUBT = (
    "training has not come to rest, and {price}: the hypergradient rests on {what} and is not exact. Allow more memory=, take "
    'fewer steps, or method="forward", which is exact in flat memory, at about a training a number; check=True says how far off '
    "it is."
)


def _at_rest(rest: Rest) -> str:
    return f"training has come to rest, {magnitude(rest.left)} of the state left to go"


def _implicit(training: Training, method: Implicit, terms: Terms) -> Estimate:
    """By the step that comes next, which is the last."""
    source = training.inner.batches
    count = 1 if callable(source.source) else source.distinct or AVERAGED  # a function may have no batches past the end
    by_default = Last() if isinstance(method.solver, Auto) or count == 1 else Average(min(count, AVERAGED))
    return implicit_at(training, method, terms.last or by_default, terms.on_failure)
