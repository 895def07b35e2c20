"""A vanishing adjoint in float32: a long series of counted terms, by hand without a guard and by the library with it.

The terms fall below 1e-38, where floats are denormal, on which some processors take a hundred cycles a number and others hardly
more than usual (`penalty` is what this one takes). They never become zero, since a·v rounds back to v at the smallest float for
any a above ½. The library ends a series once its terms add nothing, and so does neither the work nor meet the denormals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

import steadygrad as sg
from benchmarks.frame import Effort, Figures, Row, Rows, race, short
from benchmarks.loops import Network, by_hand, by_library, error

RATE = 0.8
"""1e-38 is reached after 390 terms."""
SETTLED = 60
"""Steps to the state: enough for RATE, and no matter here."""
GOAL = 10.0
"""How many times slower the series should be without the guard."""


@dataclass(frozen=True)
class Problem:
    """F = tanh(h Wᵀ + x) with W a permutation times RATE: sums have one term, so that nothing cancels to zero."""

    network: Network
    terms: int

    @staticmethod
    def make(rows: int, size: int, terms: int) -> Problem:
        generator = torch.Generator().manual_seed(0)
        W = RATE * torch.eye(size)[torch.randperm(size, generator=generator)]
        return Problem(Network(W.requires_grad_(), 0.01 * torch.randn(rows, size, generator=generator)), terms)

    def by_hand(self) -> Tensor:
        return by_hand(self.network, SETTLED, self.terms)

    def flushed(self) -> Tensor:
        """By hand with the processor's flag that makes denormals zero: the cure that is left to those who write the loop."""
        torch.set_flush_denormal(True)
        try:
            return self.by_hand()
        finally:
            torch.set_flush_denormal(False)

    def by_library(self) -> Tensor:
        forward, gradient = sg.Picard(max_steps=SETTLED, rtol=0), sg.Implicit(sg.Neumann(steps=self.terms))
        return by_library(self.network, forward=forward, gradient=gradient).gradient


def rows(effort: Effort) -> Rows:
    batch, size, terms = effort.pick((64, 128, 3000), (2, 8, 450))
    what = f"F = tanh(h Wᵀ + x), W {RATE} × a permutation, state {batch}×{size}, K = {terms}, float32, one thread"
    yield Row("vanishing adjoint", what, partial(measure, effort, Problem.make(batch, size, terms)))


def measure(effort: Effort, problem: Problem) -> Figures:
    runs: dict[str, Callable[[], Tensor]] = {
        "library": problem.by_library,
        "by hand": problem.by_hand,
        "by hand, denormals flushed": problem.flushed,
    }
    expected = problem.flushed()
    errors = {name: short(error(run(), expected)) for name, run in runs.items()}
    return {"goal": GOAL, "errors": errors, "penalty": short(penalty(problem.network)), "times": race(runs, effort)}


def penalty(network: Network) -> float:
    """The time of a product with terms of 1e-42 over that with terms of 1, on this processor: medians of 21, in turns."""
    leaf = network.start.requires_grad_()
    image = network(leaf)
    taken: dict[float, list[float]] = {1.0: [], 1e-42: []}
    for _ in range(21):
        for size, times in taken.items():
            v = torch.full_like(network.x, size)
            started = time.perf_counter()
            torch.autograd.grad(image, leaf, v, retain_graph=True)
            times.append(time.perf_counter() - started)
    return sorted(taken[1e-42])[10] / sorted(taken[1.0])[10]
