"""The default call over the hand-written loop, both equations to the same tolerance of 1e-5."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import steadygrad as sg
from benchmarks import jax_loops, torchdeq_loops
from benchmarks.fixed_counts import installed
from benchmarks.frame import Effort, Figures, Row, Rows, apart, race, short
from benchmarks.loops import LIMIT, TINY, Answer, Network, by_hand_to, by_library, error

RTOL = 1e-5
FORWARD = sg.Picard(max_steps=LIMIT, rtol=RTOL)
"""The default but for its limit of 100 steps, which ρ = 0.95 needs more than."""
GOALS = {(32, 64): 1.4, (64, 512): 1.1}
"""The largest ratio to the hand-written loop that is aimed at, by the size of the state."""
RADII = (0.5, 0.8, 0.95)
WAYS = {"auto": {}, "Neumann(rtol=1e-5)": {"gradient": sg.Implicit(sg.Neumann(rtol=RTOL, max_steps=LIMIT))}}


def rows(effort: Effort) -> Rows:
    for (batch, size), goal in GOALS.items():
        for radius in RADII:
            what = f"F = tanh(h Wᵀ + x), state {batch}×{size}, ρ(W) = {radius}, both equations to 1e-5, float32"
            yield Row(f"{batch}x{size}, {radius}", what, partial(measure, effort, batch, size, radius, goal))


def measure(effort: Effort, batch: int, size: int, radius: float, goal: float) -> Figures:
    return {"goal": goal} | apart(beside_by_hand, ["steadygrad", *installed()], effort, batch, size, radius)


def beside_by_hand(effort: Effort, library: str, batch: int, size: int, radius: float) -> Figures:
    """Times, counts and errors of one library over those of the hand-written loop."""
    network = Network.random(*effort.pick((batch, size), TINY), radius)
    runs: dict[str, Callable[[], object]] = {"by hand": partial(by_hand_to, network, RTOL)}
    if library == "steadygrad":
        runs |= {name: partial(by_library, network, forward=FORWARD, **options) for name, options in WAYS.items()}
    elif library == "torchdeq":
        runs["torchdeq"] = torchdeq_loops.to_tolerance(network, RTOL, LIMIT)
    else:
        runs["JAX, jitted"] = jax_loops.to_tolerance(network, RTOL)
    exact = network.exact()
    answers = {name: run() for name, run in runs.items()}
    counts = {name: [a.steps, a.products] for name, a in answers.items() if isinstance(a, Answer)}
    errors = {name: short(error(a.gradient if isinstance(a, Answer) else a, exact)) for name, a in answers.items()}
    return {"counts": counts, "errors": errors, "times": race(runs, effort)}
