"""Hypergradients by implicit differentiation of the last training step: RBP, CG-RBP, Neumann-RBP and the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from steadygrad.diagnose.checks import Dependence, dependence_on
from steadygrad.diagnose.scale import Scale
from steadygrad.gradient import Implicit
from steadygrad.hyper.objective import Slope, pull, slope
from steadygrad.hyper.problem import Inner, Split, attention_for_a_graph, with_gradient
from steadygrad.hyper.resolve import Average, Fresh, Full, Samples
from steadygrad.hyper.result import Estimate
from steadygrad.hyper.training import Training
from steadygrad.linear import Neumann
from steadygrad.solution import AdjointRecord, OnFailure, magnitude, report_failure
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
    training = Training(inner, inner.batches.stream())
    training.go_on(inner.steps - 1)
    return implicit_at(training, method, samples, on_failure)


def implicit_at(training: Training, method: Implicit, samples: Samples, on_failure: OnFailure) -> Estimate:
    """The implicit hypergradient of a training of which the last step is left to take, on the next batch of the stream."""
    inner = training.inner
    if isinstance(samples, Fresh):
        estimates = _fresh(training, method, samples, on_failure)
    else:
        count = samples.count if isinstance(samples, Average) else 1
        # One by one: reading the others first would draw numbers that the last step's dropout draws in training.
        batches = [samples.batch] if isinstance(samples, Full) else islice(training.stream, count)
        state = training.detached()
        estimates = (_at(inner, state, batch, method, first=i == 0) for i, batch in enumerate(batches))
    found = reduce(Estimate.beside, estimates)
    inner.show(inner.steps, found.state)
    return replace(found, stochastic=isinstance(samples, (Average, Fresh)))


class Linearised:
    """The last step at a state, with its graph: the image, J, and ∂F/∂θ."""

    def __init__(self, inner: Inner, state: State, batch: Any) -> None:
        self.inner, self.hyper = inner, with_gradient(inner.hyper)
        self.at, self.split, last = state, inner.split, inner.step
        rest = None if inner.trainer is None else inner.trainer.at_rest()
        if inner.trainer is not None and rest is not None:
            # The same minima with another J: what that optimiser keeps beside the parameters is left out.
            self.at, last = _of_every_optimiser(state), rest
            self.split = Split.of(self.at, inner.trainer)
            with torch.no_grad():
                self.state = inner.advance(state, batch)
        moving, carried = self.split.part(self.at)
        layout = Layout.of(tuple(moving))
        split, after, hyper = self.split, list(carried), self.hyper

        def call(leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # knows nothing of self: a cycle would keep the graph
            with attention_for_a_graph():
                new, after[:] = split.part(last(split.join(leaves, carried), dict(hyper), batch))
            return tuple(new)

        self.update = Update(call, (), layout)
        self.jacobian = Jacobian(self.update, layout.flatten([leaf.detach() for leaf in moving]))
        if rest is None:
            self.state = split.join([leaf.detach() for leaf in self.jacobian.outputs], list(after))

    def cotangents(self, end: Slope) -> list[Tensor]:
        """∂L/∂h for the tensors that this linearisation has."""
        if self.split is self.inner.split:
            return end.state
        whole = self.inner.split.join(end.state, self.inner.split.part(self.state)[1])
        return self.split.part(_of_every_optimiser(whole))[0]

    def pull(self, z: Sequence[Tensor]) -> list[Tensor | None]:
        """zᵀ ∂F/∂θ, for each hyperparameter."""
        return pull(self.jacobian.outputs, z, self.hyper.values(), keep_graph=True)

    def residual(self) -> float:
        """‖F(h) − h‖ / ‖F(h)‖."""
        moved = self.jacobian.gap()
        return float(moved.norm()) / (float((self.jacobian.h + moved).norm()) or 1.0)

    def remaining(self, z: Tensor, b: Tensor) -> float:
        """(z − b)·(F(h) − h), the b of the step that was taken left out."""
        return float(((z - b) * self.jacobian.gap()).sum())

    def dependence(self, end: Slope) -> dict[str, Dependence]:
        """Which hyperparameters move the steady state, without those that the objective uses directly, which have a gradient.

        torch's random state stays as it was.
        """
        h = self.jacobian.h
        with torch.random.fork_rng(devices=[h.device] if h.device.type == "cuda" else []):
            update, h = (self.update, h) if self.inner.trainer is None else self._of_parameters()
            # How far training is from its end would cost a solve of its own; unknown (1.0) means a fixed threshold.
            scale = Scale(update.layout, 0.0)
            found = dependence_on(update, h, self.hyper, scale, torch.Generator().manual_seed(0), distance=1.0)
        return {name: one for name, one in found.items() if end.direct[name] is None}

    def _of_parameters(self) -> tuple[Update, Tensor]:
        """The step as a map of the parameters alone; Adam's squares, moved by themselves, would be no state of Adam's."""
        leaves, function = self.update.layout.split(self.jacobian.h), self.update.function
        parameters = leaves_of(self.split.join(leaves, self.split.part(self.at)[1])["parameters"])
        own = [any(leaf is p for p in parameters) for leaf in leaves]

        def call(given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            rest = iter(given)
            new = function(tuple(next(rest) if moves else leaf for leaf, moves in zip(leaves, own, strict=True)))
            return tuple(leaf for leaf, moves in zip(new, own, strict=True) if moves)

        layout = Layout.of(tuple(parameters))
        return Update(call, (), layout), layout.flatten(parameters)


def _of_every_optimiser(state: State) -> State:
    """What of a state every optimiser has, whatever it keeps besides."""
    return {key: state[key] for key in ("parameters", "statistics", "buffers")}


def _at(inner: Inner, state: State, batch: Any, method: Implicit, first: bool) -> Estimate:
    """One linearisation, and one adjoint solve for z with (I − Jᵀ)z = b.

    A failure of the solve is reported by `trust`, whose advice is that for a training.
    """
    last = Linearised(inner, state, batch)
    end = slope(inner, last.state)
    b, record = last.cotangents(end), AdjointRecord()
    z = method.adjoint_at(last.jacobian, record, "ignore").solve(b)
    assert record.last is not None
    grads, flatten = end.gradients(last.pull(z)), last.update.layout.flatten
    dependence = last.dependence(end) if first else {}
    left = last.remaining(flatten(z), flatten(b))
    return Estimate(last.state, end.value, [grads], [record.last], dependence, last.residual(), remaining=[left])


def _fresh(training: Training, method: Implicit, samples: Fresh, on_failure: OnFailure) -> Iterator[Estimate]:
    """The Neumann series with a new mini-batch for every term, so many times over."""
    inner, stream, state = training.inner, training.stream, training.detached()
    steps = method.solver.steps if isinstance(method.solver, Neumann) else None
    if steps is None:
        raise ValueError(f"Fresh(...) needs a Neumann series of a given length, Implicit(Neumann(steps=K)); got {method!r}.")
    for i in range(samples.count):
        first = Linearised(inner, state, next(stream))
        end = slope(inner, first.state)
        dependence, residual = first.dependence(end) if i == 0 else {}, first.residual()
        after = first.state
        b = v = z = first.update.layout.flatten(first.cotangents(end))
        size = float(b.norm())
        del first  # for its graph
        for _ in range(steps):
            v = Linearised(inner, state, next(stream)).jacobian.vjp(v)
            z = z + v
        if not float(v.norm()) <= GROWTH * size:
            report_failure(_GREW.format(magnitude(float(v.norm()) / (size or 1.0))), on_failure)
        last = Linearised(inner, state, next(stream))
        grads = end.gradients(last.pull(last.update.layout.split(z)))
        yield Estimate(after, end.value, [grads], [], dependence, residual, remaining=[last.remaining(z, b)])


_GREW = (
    "the terms of the stochastic Neumann series grew to {} times the cotangent: the products of J over mini-batches do not decay."
    " Take fewer steps, larger batches, a smaller learning rate, or last=Full(batch) with a solver that needs no decay."
)
