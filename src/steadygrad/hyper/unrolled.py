"""Hypergradients by back-propagation through training, all of it or its end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steadygrad.hyper.estimate import Estimate
from steadygrad.hyper.objective import pull, slope, total
from steadygrad.hyper.problem import Inner, with_gradient
from steadygrad.state import State


def unrolled(inner: Inner, steps: int | None) -> Estimate:
    """BPTT through the last `steps` steps of training; None for all. Exact for all, memory grows with them.

    Vanishing cotangents fall into denormal floats, on which a CPU is some 25 times slower: call
    `torch.set_flush_denormal(True)` at the start of the program.
    """
    recorded = inner.steps if steps is None else min(steps, inner.steps)
    stream = inner.batches.stream()
    state = inner.train(stream, inner.steps - recorded)
    recording = Recording(inner, state)
    for t in range(inner.steps - recorded, inner.steps):
        recording.step(next(stream))
        inner.show(t + 1, recording.state)
    return recording.estimate()


class Recording:
    """Training with a graph, step by step, until one backward pass is taken through all of it."""

    def __init__(self, inner: Inner, state: State) -> None:
        self._inner = inner
        self._hyper = with_gradient(inner.hyper)
        self.state = state

    def attach(self) -> None:
        """Let the state need a gradient already before the first step, so that the graph of that is as large as the others'.

        A step may write into its state: so the tensors are copies, and no leaves of autograd's.
        """
        moving, carried = self._inner.split.part(self.state)
        leaves = [leaf.detach().requires_grad_().clone() for leaf in moving]
        self.state = self._inner.split.join(leaves, [leaf.clone() for leaf in carried])

    def step(self, batch: Any) -> None:
        """One step of training, with its graph."""
        with torch.enable_grad():
            new = self._inner.advance(self.state, batch, self._hyper)
        moving, carried = self._inner.split.part(new)
        self.state = self._inner.split.join(moving, carried)

    def detached(self) -> State:
        """The state as it is now, without its graph."""
        moving, carried = self._inner.split.part(self.state)
        return self._inner.split.join([leaf.detach() for leaf in moving], carried)

    def pass_over(self, batch: Any) -> None:
        """One step of training, without a graph."""
        with torch.no_grad():
            self.state = self._inner.advance(self.state, batch)

    def forget(self) -> None:
        """Drop the graph: training goes on, and what was done so far is a constant."""
        self.state = self.detached()

    def estimate(self) -> Estimate:
        """The objective at the state as it is now, and its gradient through all that was recorded."""
        moving: list[Tensor] = self._inner.split.part(self.state)[0]
        last = self.detached()
        end = slope(self._inner, last)
        through = pull(moving, end.state, self._hyper)
        grads = {name: total(g, end.direct[name]) for name, g in zip(self._hyper, through, strict=True)}
        return Estimate(last, end.value, [grads])
