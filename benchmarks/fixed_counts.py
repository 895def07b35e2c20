"""Thirty Picard steps and thirty products (Neumann-RBP), over the loop one would write by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

import steadygrad as sg
from benchmarks import jax_loops, torchdeq_loops
from benchmarks.frame import Effort, Figures, Row, Rows, apart, race
from benchmarks.loops import TINY, Network, by_hand, by_library, error

T = K = 30
GOALS = {(1, 16): 1.6, (32, 64): 1.2, (64, 512): 1.05}
"""The largest ratio to the hand-written loop that is aimed at, by the size of the state."""


def rows(effort: Effort) -> Rows:
    for (batch, size), goal in GOALS.items():
        what = f"F = tanh(h Wᵀ + x), state {batch}×{size}, ρ(W) = 0.5, T = K = 30, float32"
        yield Row(f"{batch}x{size}", what, partial(measure, effort, batch, size, goal))


def measure(effort: Effort, batch: int, size: int, goal: float) -> Figures:
    return {"goal": goal} | apart(beside_by_hand, ["steadygrad", *installed()], effort, batch, size)


def beside_by_hand(effort: Effort, library: str, batch: int, size: int) -> Figures:
    """Times of one library over the hand-written loop."""
    network = Network.random(*effort.pick((batch, size), TINY))
    runs: dict[str, Callable[[], object]] = {"by hand": partial(by_hand, network, T, K)}
    if library == "steadygrad":
        runs["steadygrad"] = partial(with_counts, network)
    elif library == "torchdeq":
        runs["torchdeq"] = torchdeq_loops.to_counts(network, T, K, simple=False)
        runs["torchdeq, simple"] = torchdeq_loops.to_counts(network, T, K, simple=True)
    else:
        runs["JAX, jitted"] = jax_loops.to_counts(network, T, K)
    expected = by_hand(network, T, K)
    errors = {name: error(run(), expected) for name, run in runs.items()}
    if max(errors.values()) > 1e-4:
        raise RuntimeError(f"the runs do not agree, so that their times mean nothing: {errors}")
    return {"times": race(runs, effort), "difference": errors}


def installed() -> list[str]:
    """The peers that these loops are written for, as far as they are installed."""
    return [name for name, loops in {"torchdeq": torchdeq_loops, "JAX": jax_loops}.items() if loops.INSTALLED]


def with_counts(network: Network, **options: object) -> torch.Tensor:
    """The library's gradient with exactly T steps and K products."""
    forward, gradient = sg.Picard(max_steps=T, rtol=0), sg.Implicit(sg.Neumann(steps=K))
    return by_library(network, forward=forward, gradient=gradient, **options).gradient
