"""compile=True beside the eager library, the hand-written eager loop and the same work in jitted JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import steadygrad as sg
from benchmarks import jax_loops
from benchmarks.default_call import FORWARD, RTOL
from benchmarks.fixed_counts import K, T, with_counts
from benchmarks.frame import Effort, Figures, Row, Rows, race, short
from benchmarks.loops import LIMIT, TINY, Network, by_hand, by_hand_to, by_library, error

GOALS = {(32, 64): {"counts": 0.5, "tolerance": 0.6}, (64, 512): {"counts": 1.0, "tolerance": 1.0}}
"""The largest ratio of the compiled call to the hand-written eager loop that is aimed at."""
NEUMANN = sg.Implicit(sg.Neumann(rtol=RTOL, max_steps=LIMIT))


def rows(effort: Effort) -> Rows:
    for (batch, size), goals in GOALS.items():
        for stop, goal in goals.items():
            until = "T = K = 30" if stop == "counts" else "both equations to 1e-5"
            what = f"F = tanh(h Wᵀ + x), state {batch}×{size}, ρ(W) = 0.8, {until}, float32"
            yield Row(f"{batch}x{size}, {stop}", what, partial(measure, effort, batch, size, stop, goal))


def measure(effort: Effort, batch: int, size: int, stop: str, goal: float) -> Figures:
    network = Network.random(*effort.pick((batch, size), TINY), 0.8)
    runs = to_counts(network) if stop == "counts" else to_tolerance(network)
    notes: list[str] = []
    for name in [name for name in runs if "compile" in name]:
        try:
            runs[name]()
        except ValueError as refusal:  # what a version without compile= says
            notes.append(f"{name}: {refusal}")
            del runs[name]
    exact = by_hand(network, T, K) if stop == "counts" else network.exact()
    errors = {name: short(error(run(), exact)) for name, run in runs.items()}
    return {"goal": goal, "errors": errors, "notes": notes, "times": race(runs, effort)}


def to_counts(network: Network) -> dict[str, Callable[[], object]]:
    runs: dict[str, Callable[[], object]] = {
        "by hand": partial(by_hand, network, T, K),
        "eager": partial(with_counts, network),
        "compile=True": partial(with_counts, network, compile=True),
    }
    if jax_loops.INSTALLED:
        runs["JAX, jitted"] = jax_loops.to_counts(network, T, K)
    return runs


def to_tolerance(network: Network) -> dict[str, Callable[[], object]]:
    def library(**options: object) -> object:
        return by_library(network, forward=FORWARD, **options).gradient

    runs: dict[str, Callable[[], object]] = {
        "by hand": lambda: by_hand_to(network, RTOL).gradient,
        "eager": partial(library, gradient=NEUMANN),
        "compile=True": partial(library, gradient=NEUMANN, compile=True),
        "auto, eager": library,
        "auto, compile=True": partial(library, compile=True),
    }
    if jax_loops.INSTALLED:
        runs["JAX, jitted"] = jax_loops.to_tolerance(network, RTOL)
    return runs
