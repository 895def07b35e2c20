"""Error of the gradient against memory and against seconds, for all methods, at a steady state and away from one.

At the steady state the reference is the implicit gradient, away from it that of the steps that were taken, both in float64. A
point is a method with a count; seconds and peak are those of the whole call, its forward steps included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import steadygrad as sg
from benchmarks.frame import Effort, Figures, Row, Rows, race, short
from benchmarks.loops import Network, by_hand_to, error
from benchmarks.wrong_gradient import diffusion
from steadygrad.peak_memory import peak_memory

COUNTS = (1, 5, 20, 50)
DRAWS = 16
"""Draws over which the error of ARTBP, which is random, is averaged (root of the mean square)."""
DAMPING = 0.5
"""Of the reversible iteration."""


@dataclass(frozen=True)
class Case:
    """A network and the steps that are taken from zero."""

    network: Network
    steps: int
    steady: bool


def rows(effort: Effort) -> Rows:
    """Two rows: one for a state that has come to rest, one for a state that has not."""
    steps = effort.pick(300, 4)
    batch, size = effort.pick((32, 64), (2, 8))
    what = f"every method, state {batch}×{size}, float32"
    rest = Case(Network.random(batch, size, 0.9), steps, steady=True)
    yield Row("steady", f"{what}, ρ(W) = 0.9, T = {steps}: at rest", partial(measure, effort, rest))
    steps = effort.pick(60, 4)
    moving = Case(single(diffusion(batch, size)), steps, steady=False)
    yield Row("not steady", f"{what}, a diffusion with ρ(W) = 0.98, T = {steps}: not at rest", partial(measure, effort, moving))


def single(network: Network) -> Network:
    return Network(network.W.detach().float().requires_grad_(), network.x.float())


def measure(effort: Effort, case: Case) -> Figures:
    """Error, peak in states, and milliseconds of every point."""
    reference, reversed_reference = references(case)
    runs = points(case, effort)
    found: dict[str, Figures] = {}
    for name, run in runs.items():
        expected = reversed_reference if name.startswith("Reversible") else reference
        draws = DRAWS if name.startswith("ARTBP") and not effort.tiny else 1
        squares = [error(run(), expected) ** 2 for _ in range(draws)]
        peak = peak_memory(run) / (case.network.x.element_size() * case.network.x.numel())
        found[name] = {"error": short((sum(squares) / draws) ** 0.5), "states": short(peak)}
    times = race(runs, effort)
    for name, figures in found.items():
        figures["ms"] = times[name]["ms"]
    left = residual(case)
    return {"points": found, "steps": case.steps, "relative_residual": short(left)}


def points(case: Case, effort: Effort) -> dict[str, Callable[[], Tensor]]:
    """Every method with every count, as "method" or "method, count"; BPTT is the first, and so the reference of the race."""
    forward = sg.Picard(max_steps=case.steps, rtol=0)
    single_points: dict[str, Any] = {
        "BPTT": sg.BPTT(),
        "BPTT √T": sg.BPTT(memory="sqrt"),
        "BPTT log T": sg.BPTT(memory="log"),
        "auto": sg.Implicit(sg.Auto(rtol=1e-5)),
        "one step": sg.Implicit(sg.Neumann(steps=0)),
    }
    counted: dict[str, Callable[[int], Any]] = {
        "RBP": lambda K: sg.Implicit(sg.Picard(max_steps=K, rtol=0)),
        "CG-RBP": lambda K: sg.Implicit(sg.NormalCG(steps=K)),
        "Neumann-RBP": lambda K: sg.Implicit(sg.Neumann(steps=K)),
        "TBPTT": lambda K: sg.TBPTT(steps=K),
        "ARTBP": lambda K: sg.ARTBP("poisson", mean=K),
        "Phantom": lambda K: sg.Phantom(steps=K),
    }
    counts = effort.pick(COUNTS, (2,))
    methods = single_points | {f"{name}, {K}": make(K) for name, make in counted.items() for K in counts}
    runs = {name: partial(gradient, case.network, forward, method) for name, method in methods.items()}
    back = sg.Reversible(max_steps=case.steps // 2, rtol=0, damping=DAMPING)  # it evaluates F twice a step
    return runs | {"Reversible": partial(gradient, case.network, back, sg.BPTT())}


def gradient(network: Network, forward: Any, method: Any) -> Tensor:
    W, x = network.W, network.x
    options = {"forward": forward, "gradient": method, "on_failure": "ignore"}
    solution = sg.steady_state(lambda h: torch.tanh(h @ W.T + x), network.start, **options)
    return torch.autograd.grad(solution.value.square().sum(), W)[0]


def references(case: Case) -> tuple[Tensor, Tensor]:
    """The exact gradient in float64 for the plain steps and for those of the reversible iteration."""
    network = Network(case.network.W.detach().double().requires_grad_(), case.network.x.double())
    if case.steady:
        exact = by_hand_to(network, 1e-12).gradient
        return exact, exact
    h = y = z = network.start
    for _ in range(case.steps):
        h = network(h)
    for _ in range(case.steps // 2):
        y = DAMPING * y + (1 - DAMPING) * network(z)
        z = DAMPING * z + (1 - DAMPING) * network(y)
    plain, coupled = (torch.autograd.grad(end.square().sum(), network.W)[0] for end in (h, z))
    return plain, coupled


def residual(case: Case) -> float:
    """‖F(h) − h‖ / ‖h‖ after the steps: how steady the state is."""
    with torch.no_grad():
        h = case.network.start
        for _ in range(case.steps):
            h = case.network(h)
        return float((case.network(h) - h).norm() / h.norm())
