"""A training under way, step by step, with a graph or without one; and back-propagation through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from steadygrad.hyper.batches import Stream
from steadygrad.hyper.objective import pull, slope
from steadygrad.hyper.problem import Inner, with_gradient
from steadygrad.hyper.result import Estimate
from steadygrad.state import State

See = Callable[[int, State, Stream], None]
"""see(done, state, stream): shown the state before a step, whose batch has not been read from the stream yet."""


class Training:
    """A training under way: its state after `done` steps, and the batches of those to come."""

    def __init__(self, inner: Inner, stream: Stream, state: State | None = None) -> None:
        self.inner, self.stream = inner, stream
        self.state = inner.state if state is None else state
        self.done = 0
        self.batch: Any = None
        """What the last step was taken on."""
        self.hyper = with_gradient(inner.hyper)

    def attach(self) -> list[Tensor]:
        """Let the state need a gradient from here on, and return its leaves.

        A step may write into its state: so the state is a copy of them.
        """
        moving, carried = self.inner.split.part(self.state)
        leaves = [leaf.detach().requires_grad_() for leaf in moving]
        self.state = self.inner.split.join([leaf.clone() for leaf in leaves], [leaf.clone() for leaf in carried])
        return leaves

    def read(self, see: See | None = None) -> None:
        """Take the next batch, after `see` has seen the state before it."""
        if see is not None:
            see(self.done, self.state, self.stream)
        self.batch = next(self.stream)

    def take(self, graph: bool) -> None:
        """One step on the batch that was read."""
        split = self.inner.split
        with torch.set_grad_enabled(graph):
            new = self.inner.advance(self.state, self.batch, self.hyper if graph else None)
        self.state = split.join(*split.part(new)) if graph else new  # what is carried has no gradient
        self.done += 1

    def step(self, graph: bool, see: See | None = None) -> None:
        """One step on the next batch."""
        self.read(see)
        self.take(graph)

    def show(self) -> None:
        """Let the caller's observer see the state."""
        self.inner.show(self.done, self.state)

    def go_on(self, until: int, graph: bool = False, see: See | None = None) -> None:
        """Steps until so many are done, shown to the caller. Without a graph memory does not grow with them."""
        while self.done < until:
            self.step(graph, see)
            self.show()

    def detached(self) -> State:
        """The state as it is now, without its graph, ordered as the start is."""
        moving, carried = self.inner.split.part(self.state)
        return self.inner.split.join([leaf.detach() for leaf in moving], carried)

    def forget(self) -> None:
        """Drop the graph: what was done so far is a constant."""
        self.state = self.detached()

    def estimate(self) -> Estimate:
        """The objective at the state as it is now, and its gradient through all steps that have a graph."""
        last = self.detached()
        end = slope(self.inner, last)
        through = pull(self.inner.split.part(self.state)[0], end.state, self.hyper.values())
        return Estimate(last, end.value, [end.gradients(through)])


def unrolled(inner: Inner, steps: int | None) -> Estimate:
    """BPTT through the last `steps` steps of training; None for all. Exact for all, memory grows with them.

    Vanishing cotangents fall into denormal floats, on which a CPU is some 25 times slower: call
    `torch.set_flush_denormal(True)` at the start of the program.
    """
    training = Training(inner, inner.batches.stream())
    training.go_on(inner.steps - (inner.steps if steps is None else min(steps, inner.steps)))
    training.go_on(inner.steps, graph=True)
    return training.estimate()
