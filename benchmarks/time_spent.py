"""Where the time of a small call goes: the steps and products that a loop by hand has too, and what the library does around them.

Functions are timed from outside while they work, each without those inside it that are timed too. That takes a microsecond a
call, so that the sum is a little more than the call takes undisturbed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch

import steadygrad as sg
from benchmarks.default_call import FORWARD, RTOL
from benchmarks.fixed_counts import K, T, with_counts
from benchmarks.frame import Effort, Figures, Row, Rows, in_fresh_process, short
from benchmarks.loops import TINY, Network, by_hand, by_hand_to, by_library
from steadygrad.gradient import adjoint, implicit, trust
from steadygrad.iteration import run
from steadygrad.linear import solver
from steadygrad.update import capture, jacobian, randomness, update

PARTS: dict[str, list[tuple[Any, str]]] = {
    "steps of F": [(update.Update, "advance")],
    "products with Jᵀ": [(jacobian.Jacobian, "add_terms")],
    "graphs": [(capture.CapturedCall, "run")],
    "looks": [(run.Run, "_look")],
    "driver besides": [(run.Run, "__init__"), (run.Run, "run")],
    "first calls of F, watched for draws": [(randomness.FrozenRandomness, "_watched")],
    "F linearised": [(implicit, "Jacobian")],
    "certificate of z": [(solver, "certified")],
    "trust in state and gradient": [(trust.Trust, "doubts"), (trust.Trust, "changes")],
    "adjoint besides": [(adjoint.Adjoint, "solve")],
    "call besides": [(sg, "steady_state")],
}
"""What is timed, each without what is in the others; the rest is autograd's."""
CALLS = 400
WARM = 50


def rows(effort: Effort) -> Rows:
    ways = {
        "counts": "T = K = 30",
        "counts, compile=True": "T = K = 30, compiled",
        "default call": "both equations to 1e-5, auto",
        "batch_dims=1": "both equations to 1e-5, auto, each row by itself",
    }
    for name, what in ways.items():
        yield Row(
            name, f"F = tanh(h Wᵀ + x), state 32×64, ρ(W) = 0.5, {what}, float32, microseconds", partial(measure, effort, name)
        )


def measure(effort: Effort, way: str) -> Figures:
    return spent(effort, way) if effort.tiny else in_fresh_process(spent, effort, way)


def spent(effort: Effort, way: str) -> Figures:
    """Microseconds of the parts of a call, of the call undisturbed, and of the loop by hand."""
    torch.set_num_threads(1)
    network = Network.random(*effort.pick((32, 64), TINY))
    call, reference = ways_of(network)[way]
    undisturbed, loop = (microseconds(run, effort) for run in (call, reference))
    with timed() as parts:
        microseconds(call, effort, parts)
    found = {name: short(statistics.median(times)) for name, times in parts.items() if any(times)}
    return {"parts": found, "call": short(undisturbed), "by hand": short(loop)}


def ways_of(network: Network) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """The calls, each with the loop by hand that does the same."""
    counted, tolerant = partial(by_hand, network, T, K), partial(by_hand_to, network, RTOL)
    return {
        "counts": (partial(with_counts, network), counted),
        "counts, compile=True": (partial(with_counts, network, compile=True), counted),
        "default call": (partial(by_library, network, forward=FORWARD), tolerant),
        "batch_dims=1": (partial(by_library, network, forward=FORWARD, batch_dims=1), tolerant),
    }


def microseconds(call: Callable[[], object], effort: Effort, parts: dict[str, list[float]] | None = None) -> float:
    """The median of many calls; with `parts`, a list of the times of each, call by call."""
    for _ in range(effort.pick(WARM, 1)):
        call()
    for times in (parts or {}).values():
        times.clear()
    taken: list[float] = []
    for _ in range(effort.pick(CALLS, 2)):
        for times in (parts or {}).values():
            times.append(0.0)
        started = time.perf_counter()
        call()
        taken.append(1e6 * (time.perf_counter() - started))
    return statistics.median(taken)


@contextmanager
def timed() -> Iterator[dict[str, list[float]]]:
    """Times the parts; the last number of each list is that of the present call, in microseconds."""
    parts: dict[str, list[float]] = {name: [0.0] for name in PARTS}
    inside = [0.0]  # a stack: what the functions took that were called by the one at work
    before = [(owner, name, getattr(owner, name)) for places in PARTS.values() for owner, name in places]

    def watched(function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            inside.append(0.0)
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                taken = 1e6 * (time.perf_counter() - started)
                times[-1] += taken - inside.pop()
                inside[-1] += taken

        return call

    for part, places in PARTS.items():
        for owner, name in places:
            setattr(owner, name, watched(getattr(owner, name), parts[part]))
    try:
        yield parts
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)
