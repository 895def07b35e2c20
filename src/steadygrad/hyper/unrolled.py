"""Hypergradients by back-propagation through training, all of it or its end."""

from __future__ import annotations

import torch

from steadygrad.hyper.estimate import Estimate
from steadygrad.hyper.objective import pull, slope, total
from steadygrad.hyper.problem import Inner, with_gradient


def unrolled(inner: Inner, steps: int | None) -> Estimate:
    """BPTT through the last `steps` steps of training; None for all. Exact for all, memory grows with them.

    Vanishing cotangents fall into denormal floats, on which a CPU is some 25 times slower: call
    `torch.set_flush_denormal(True)` at the start of the program.
    """
    recorded = inner.steps if steps is None else min(steps, inner.steps)
    stream = inner.batches.stream()
    state = inner.train(stream, inner.steps - recorded)
    hyper = with_gradient(inner.hyper)
    with torch.enable_grad():
        for t in range(inner.steps - recorded, inner.steps):
            moving, carried = inner.split.part(inner.advance(state, next(stream), hyper))
            state = inner.split.join(moving, carried)
            inner.show(t + 1, state)
    moving, carried = inner.split.part(state)
    last = inner.split.join([leaf.detach() for leaf in moving], carried)
    end = slope(inner, last)
    through = pull(moving, end.state, hyper)
    return Estimate(last, end.value, [{n: total(g, end.direct[n]) for n, g in zip(hyper, through, strict=True)}])
