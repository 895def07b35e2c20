"""compile=True beside the eager library, the hand-written eager loop and the same work in jitted JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import steadygrad as sg
from benchmarks import jax_loops
from benchmarks.default_call import FORWARD, RTOL
from benchmarks.fixed_counts import K, T, with_counts
from benchmarks.frame import Effort, Figures, Row, Rows, apart, race, short
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
    libraries = ["steadygrad", *(["JAX"] if jax_loops.INSTALLED else [])]
    return {"goal": goal} | apart(beside_by_hand, libraries, effort, batch, size, stop)


def beside_by_hand(effort: Effort, library: str, batch: int, size: int, stop: str) -> Figures:
    """Times and errors of one library over those of the hand-written eager loop."""
    network = Network.random(*effort.pick((batch, size), TINY), 0.8)
    runs = to_counts(network, library) if stop == "counts" else to_tolerance(network, library)
    exact = by_hand(network, T, K) if stop == "counts" else network.exact()
    errors = {name: short(error(run(), exact)) for name, run in runs.items()}
    return {"errors": errors, "times": race(runs, effort)}


def to_counts(network: Network, library: str) -> dict[str, Callable[[], object]]:
    runs: dict[str, Callable[[], object]] = {"by hand": partial(by_hand, network, T, K)}
    if library == "JAX":
        return runs | {"JAX, jitted": jax_loops.to_counts(network, T, K)}
    return runs | {"eager": partial(with_counts, network), "compile=True": partial(with_counts, network, compile=True)}


def to_tolerance(network: Network, library: str) -> dict[str, Callable[[], object]]:
    def run(**options: object) -> object:
        return by_library(network, forward=FORWARD, **options).gradient

    runs: dict[str, Callable[[], object]] = {"by hand": lambda: by_hand_to(network, RTOL).gradient}
    if library == "JAX":
        return runs | {"JAX, jitted": jax_loops.to_tolerance(network, RTOL)}
    return runs | {
        "eager": partial(run, gradient=NEUMANN),
        "compile=True": partial(run, gradient=NEUMANN, compile=True),
        "auto, eager": run,
        "auto, compile=True": partial(run, compile=True),
    }
