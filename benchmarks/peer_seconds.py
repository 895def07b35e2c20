"""The same gradient to the same tolerance by the library and every peer, each with the solvers that it is used with here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.compared import DEFAULT_CALL
from benchmarks.frame import Effort, Figures, Row, Rows, apart, race, short
from benchmarks.honesty import PEERS, first_line, message
from benchmarks.loops import TINY, Network, by_hand_to, by_library, error
from benchmarks.peers import Stop

RTOL = 1e-5
STEPS = 300
"""A limit that plain iteration stays far below: it takes 45 steps."""


def rows(effort: Effort) -> Rows:
    for batch, size in [(32, 64), (64, 512)]:
        what = f"F = tanh(h Wᵀ + x), state {batch}×{size}, ρ(W) = 0.8, both equations to 1e-5, float32, by each library's way"
        yield Row(f"{batch}x{size}", what, partial(measure, effort, batch, size))


def measure(effort: Effort, batch: int, size: int) -> Figures:
    libraries = [DEFAULT_CALL, *(peer.name for peer in PEERS if peer.installed)]
    return apart(beside_by_hand, libraries, effort, batch, size)


def beside_by_hand(effort: Effort, library: str, batch: int, size: int) -> Figures:
    """Times and error of one library; what it says where it cannot do this."""
    network = Network.random(*effort.pick((batch, size), TINY), 0.8)
    stop, exact = Stop(RTOL, STEPS), network.exact()
    runs: dict[str, Callable[[], object]] = {"by hand": lambda: by_hand_to(network, RTOL)}
    if library == DEFAULT_CALL:
        runs[library] = lambda: by_library(network)
    else:
        runs |= {peer.name: peer.prepare(network, stop, stop) for peer in PEERS if peer.name == library}
    errors, failed = {}, {}
    for name, run in list(runs.items()):
        try:
            errors[name] = short(error(run().gradient, exact))  # pyright: ignore[reportAttributeAccessIssue]
        except Exception as refusal:  # a peer that cannot do this is a finding, and the others are still to be measured
            failed[name] = first_line(message(refusal))
            del runs[name]
    return {"errors": errors, "failed": failed, "times": race(runs, effort, drop_slower_than=50.0)}
