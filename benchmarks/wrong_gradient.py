"""A gradient whose adjoint solve was stopped early, over the steps it had: its true error, and what the user is told.

Float64, F = tanh(h Wᵀ + x) at its steady state, W a diffusion: a number of the state becomes 0.98 times a weighted mean of all.
Every library has its own solver, and a tolerance that it does not reach in few steps; what the library's certificate estimates
stands beside the true error.
"""

from __future__ import annotations

from functools import partial

import torch

import steadygrad as sg
from benchmarks.frame import Effort, Figures, Row, Rows, short
from benchmarks.honesty import WELL, listen, verdict
from benchmarks.loops import Network, by_hand_to, error
from benchmarks.peers import Peer, Steadygrad, Stop, TorchDEQ, TorchOpt

RADIUS = 0.98
COUNTS = (1, 2, 5, 10, 20, 40, 80, 160, 320)
DEFAULT = 40
"""Steps of torchdeq's backward solver (b_max_iter) if nothing is said."""
TOLERANCE = 1e-6
"""Of the adjoint; torchdeq's default (b_tol)."""
DEFAULT_CALL = "steadygrad, default call"
PEERS: list[Peer] = [Steadygrad(), TorchDEQ(), TorchOpt()]


def rows(effort: Effort) -> Rows:
    """A row a library that can be told how many steps it has, without being compiled again for each count."""
    size, counts = effort.pick((64, COUNTS), (8, COUNTS[:3]))
    what = (
        f"error of the gradient over the steps of the adjoint solver, diffusion with ρ(W) = {RADIUS}, 8×{size}, to {TOLERANCE:g}"
    )
    for peer in PEERS:
        if peer.installed:
            yield Row(peer.name, f"{what}; {peer.name} by {peer.by}; float64", partial(measure, peer, size, counts))
    yield Row(DEFAULT_CALL, "the same gradient by the default call, which chooses its steps itself", partial(default_call, size))


def default_call(size: int) -> Figures:
    """Products, true error and estimate of gradient="auto" to the same tolerance."""
    network = diffusion(8, size)
    W, x = network.W, network.x
    solution = sg.steady_state(
        lambda h: torch.tanh(h @ W.T + x),
        network.start,
        forward=sg.Picard(max_steps=WELL.steps, rtol=WELL.rtol),
        gradient=sg.Implicit(sg.Auto(rtol=TOLERANCE)),
    )
    (gradient,) = torch.autograd.grad(solution.value.square().sum(), W)
    assert solution.adjoint is not None
    return {
        "peer": DEFAULT_CALL,
        "counts": [solution.adjoint.products],
        "errors": [short(error(gradient, by_hand_to(network, 1e-13).gradient))],
        "estimates": [short(solution.adjoint.error_estimate)],
        "status": solution.adjoint.status.name,
    }


def diffusion(batch: int, size: int) -> Network:
    """W is RADIUS times a random stochastic matrix, x small and positive, so that tanh is nearly linear and ρ(J) nearly ρ(W)."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(size, size, generator=generator, dtype=torch.float64)
    x = 1e-3 * (1 + torch.rand(batch, size, generator=generator, dtype=torch.float64))
    return Network((RADIUS * weights / weights.sum(1, keepdim=True)).requires_grad_(), x)


def measure(peer: Peer, size: int, counts: tuple[int, ...]) -> Figures:
    """For every count: the true error, the estimate where there is one, the words, and the verdict."""
    network = diffusion(8, size)
    exact = by_hand_to(network, 1e-13).gradient
    errors, estimates, verdicts, words = [], [], [], []
    for count in counts:
        found, said = listen(peer.prepare(network, WELL, Stop(rtol=TOLERANCE, steps=count)))
        off = None if found is None else short(error(found.gradient, exact))
        errors.append(off)
        estimates.append(None if found is None or found.estimate is None else short(found.estimate))
        verdicts.append("right" if off is not None and off <= 10 * TOLERANCE else verdict(said, off))
        words.append(said.get("exception") or said.get("warning") or said.get("output") or "")
    return {
        "peer": peer.name,
        "counts": list(counts),
        "errors": errors,
        "estimates": estimates,
        "verdicts": verdicts,
        "words": words,
        "default": DEFAULT,
    }
