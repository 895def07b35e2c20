"""Hypergradients by back-propagation through training, all of it or its end."""

from __future__ import annotations

import torch
from torch import Tensor

from steadygrad.hyper.estimate import Estimate
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
        value = inner.loss(state, hyper)
    inner.check_finite(state, value)
    grads: list[Tensor | None] = [None] * len(hyper)
    if value.requires_grad:
        grads = list(torch.autograd.grad(value, list(hyper.values()), allow_unused=True))
    moving, carried = inner.split.part(state)
    last = inner.split.join([leaf.detach() for leaf in moving], carried)
    return Estimate(last, value.detach(), [dict(zip(hyper, grads, strict=True))])
