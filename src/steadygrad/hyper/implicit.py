"""Hypergradients by implicit differentiation of the last training step: RBP, CG-RBP, Neumann-RBP and the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from steadygrad.diagnose.checks import Dependence, dependence_on
from steadygrad.diagnose.scale import Scale
from steadygrad.gradient import Implicit
from steadygrad.hyper.attention import attention_for_a_graph
from steadygrad.hyper.estimate import Estimate, Gradients
from steadygrad.hyper.objective import Slope, pull, slope, total
from steadygrad.hyper.problem import Inner, Split, Trainer, with_gradient
from steadygrad.hyper.samples import Average, Fresh, Full, Samples
from steadygrad.linear import Neumann
from steadygrad.solution import AdjointRecord, AdjointSolution, OnFailure, magnitude, report_failure
from steadygrad.state import Layout, State, leaves_of
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian

GROWTH = 1e3
"""Terms of a stochastic Neumann series that are this much larger than the cotangent have diverged."""


def implicit(inner: Inner, method: Implicit, samples: Samples, on_failure: OnFailure) -> Estimate:
    """dL/dθ = zᵀ ∂F/∂θ + ∂L/∂θ with (I − Jᵀ)z = ∂L/∂h, F being the last of the T training steps.

    The steps before it leave no graph. F is linearised at h_{T−1} and the objective taken at h_T = F(h_{T−1}), as in the
    paper; at a steady state the two are the same.
    """
    stream = inner.batches.stream()
    state = inner.train(stream, inner.steps - 1)
    return implicit_at(inner, state, stream, method, samples, on_failure)


def implicit_at(
    inner: Inner, state: State, stream: Iterator[Any], method: Implicit, samples: Samples, on_failure: OnFailure
) -> Estimate:
    """The implicit hypergradient of a training of which the last step is left to take, on the next batch of the stream."""
    if isinstance(samples, Fresh):
        return _fresh(inner, state, stream, method, samples, on_failure)
    count = samples.count if isinstance(samples, Average) else 1
    # One by one: reading the others first would draw numbers that the last step's dropout draws in training.
    batches = [samples.batch] if isinstance(samples, Full) else islice(stream, count)
    found: Estimate | None = None
    for batch in batches:
        one = _at(inner, state, batch, method, first=found is None)
        if found is None:
            found = one
        else:
            found.samples += one.samples
            found.adjoints += one.adjoints
            found.remaining += one.remaining
    assert found is not None
    inner.show(inner.steps, found.state)
    return replace(found, stochastic=isinstance(samples, Average))


class Linearised:
    """The last step at a state, with its graph: the image, J, and ∂F/∂θ."""

    def __init__(self, inner: Inner, state: State, batch: Any) -> None:
        rest = inner.step.at_rest() if isinstance(inner.step, Trainer) else None
        self.inner = inner
        self.hyper = with_gradient(inner.hyper)
        self.split = inner.split
        if rest is not None:  # the same minima with another J: what that optimiser keeps beside the parameters is left out
            keys = ("parameters", "statistics", "buffers")
            at = {key: state[key] for key in keys}
            self.split = Split.of(at, inner.step.carried)  # type: ignore[union-attr]
            with torch.no_grad():
                real = inner.advance(state, batch)
        else:
            at, real = state, None
        self.at = at
        moving, carried = self.split.part(at)
        layout = Layout.of(tuple(moving))
        self.h = layout.flatten([leaf.detach() for leaf in moving])
        split, after, hyper = self.split, list(carried), self.hyper
        last = inner.step if rest is None else rest

        def call(leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # knows nothing of self: a cycle would keep the graph
            with attention_for_a_graph():
                new, after[:] = split.part(last(split.join(leaves, carried), dict(hyper), batch))
            return tuple(new)

        self.update = Update(call, (), layout)
        self.jacobian = Jacobian(self.update, self.h)
        self.state = self.split.join([leaf.detach() for leaf in self.jacobian.outputs], list(after)) if real is None else real

    def cotangents(self, end: Slope) -> list[Tensor]:
        """∂L/∂h for the tensors that this linearisation has."""
        whole = self.inner.split.join(end.state, self.inner.split.part(self.state)[1])
        if self.split is self.inner.split:
            return end.state
        return self.split.part({key: whole[key] for key in ("parameters", "statistics", "buffers")})[0]

    def pull(self, z: Sequence[Tensor]) -> list[Tensor | None]:
        """zᵀ ∂F/∂θ, for each hyperparameter."""
        return pull(self.jacobian.outputs, z, self.hyper, keep_graph=True)

    def moved(self) -> Tensor:
        """F(h) − h."""
        return self.update.layout.flatten([out.detach() for out in self.jacobian.outputs]) - self.h

    def residual(self) -> float:
        moved = self.moved()
        size = float((self.h + moved).norm())
        return float(moved.norm()) / (size or 1.0)

    def remaining(self, z: Tensor, b: Tensor) -> float:
        """(z − b)·(F(h) − h), the b of the step that was taken left out."""
        return float(((z - b) * self.moved()).sum())

    def dependence(self) -> dict[str, Dependence]:
        """Which hyperparameters move the steady state. torch's random state stays as it was."""
        devices = [self.h.device] if self.h.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            update, h = self._of_parameters() if isinstance(self.inner.step, Trainer) else (self.update, self.h)
            # How far training is from its end would cost a solve of its own; unknown (1.0) means a fixed threshold.
            scale = Scale(update.layout, 0.0)
            return dependence_on(update, h, self.hyper, scale, torch.Generator().manual_seed(0), distance=1.0)

    def _of_parameters(self) -> tuple[Update, Tensor]:
        """The step as a map of the parameters alone; Adam's squares, moved by themselves, would be no state of Adam's."""
        leaves, function = self.update.layout.split(self.h), self.update.function
        parameters = leaves_of(self.split.join(leaves, self.split.part(self.at)[1])["parameters"])
        own = [any(leaf is p for p in parameters) for leaf in leaves]

        def call(given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            rest = iter(given)
            new = function(tuple(next(rest) if moves else leaf for leaf, moves in zip(leaves, own, strict=True)))
            return tuple(leaf for leaf, moves in zip(new, own, strict=True) if moves)

        layout = Layout.of(tuple(parameters))
        return Update(call, (), layout), layout.flatten(parameters)


def _at(inner: Inner, state: State, batch: Any, method: Implicit, first: bool) -> Estimate:
    """One linearisation, one adjoint solve."""
    last = Linearised(inner, state, batch)
    end = slope(inner, last.state)
    b = last.cotangents(end)
    z, certificate = _solved(last, b, method)
    pulled = last.pull(z)
    grads: Gradients = {n: total(g, end.direct[n]) for n, g in zip(last.hyper, pulled, strict=True)}
    dependence = _without_direct(last.dependence(), end) if first else {}
    left = [last.remaining(last.update.layout.flatten(z), last.update.layout.flatten(b))]
    return Estimate(last.state, end.value, [grads], [certificate], dependence, last.residual(), remaining=left)


def _solved(last: Linearised, b: list[Tensor], method: Implicit) -> tuple[list[Tensor], AdjointSolution]:
    """z with (I − Jᵀ)z = b, and its certificate. A failure is reported by `trust`, whose advice is that for a training."""
    record = AdjointRecord()
    adjoint = method.adjoint_at(last.jacobian, record, "ignore")
    z = adjoint.solve(b)
    assert record.last is not None
    return z, record.last


def _without_direct(dependence: dict[str, Dependence], end: Slope) -> dict[str, Dependence]:
    """What the objective uses directly has a gradient, whether the steady state moves or not."""
    return {name: found for name, found in dependence.items() if end.direct[name] is None}


def _fresh(
    inner: Inner, state: State, stream: Iterator[Any], method: Implicit, samples: Fresh, on_failure: OnFailure
) -> Estimate:
    """The Neumann series with a new mini-batch for every term."""
    steps = method.solver.steps if isinstance(method.solver, Neumann) else None
    if steps is None:
        raise ValueError(f"Fresh(...) needs a Neumann series of a given length, Implicit(Neumann(steps=K)); got {method!r}.")
    estimate: Estimate | None = None
    for _ in range(samples.count):
        first = Linearised(inner, state, next(stream))
        end = slope(inner, first.state)
        if estimate is None:
            dependence = _without_direct(first.dependence(), end)
            estimate = Estimate(first.state, end.value, [], [], dependence, first.residual(), stochastic=True)
            inner.show(inner.steps, first.state)
        b = v = z = first.update.layout.flatten(first.cotangents(end))
        size = float(b.norm())
        del first
        for _ in range(steps):
            v = Linearised(inner, state, next(stream)).jacobian.vjp(v)
            z = z + v
        if not float(v.norm()) <= GROWTH * size:
            report_failure(_GREW.format(magnitude(float(v.norm()) / (size or 1.0))), on_failure)
        last = Linearised(inner, state, next(stream))
        pulled = last.pull(last.update.layout.split(z))
        estimate.remaining.append(last.remaining(z, b))
        estimate.samples.append({n: total(g, end.direct[n]) for n, g in zip(last.hyper, pulled, strict=True)})
    assert estimate is not None
    return estimate


_GREW = (
    "the terms of the stochastic Neumann series grew to {} times the cotangent: the products of J over mini-batches do not decay."
    " Take fewer steps, larger batches, a smaller learning rate, or last=Full(batch) with a solver that needs no decay."
)
