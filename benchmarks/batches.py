"""Independent problems: what batch_dims=1 costs, and what dropping finished problems saves where a few are slow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import steadygrad as sg
from benchmarks.default_call import FORWARD, RTOL, WAYS
from benchmarks.frame import Effort, Figures, Row, Rows, race, short
from benchmarks.loops import LIMIT, TINY, Network, error

GOALS = {(32, 64): 1.5, (64, 512): 1.2}
"""The largest time with batch_dims=1 over the time without it that is aimed at."""
GOAL_APART = round(1 / 1.7, 2)
"""The largest time of the unequal problems apart over together that is aimed at: 1.7 times faster."""
PROBLEMS, SLOW, SIZE = 256, 13, 128
FAR_BEHIND = 5.0
"""Who takes that many times the fastest is timed once only."""
QUICK, TEDIOUS = 0.4, 0.92
"""Factors of an orthogonal W: 12 and 130 steps to 1e-5, so that 13 problems need some ten times the steps of the others."""


def rows(effort: Effort) -> Rows:
    for (batch, size), goal in GOALS.items():
        for way in WAYS:
            what = f"F = tanh(h Wᵀ + x), state {batch}×{size}, ρ(W) = 0.8, x an argument, to 1e-5, {way}, float32"
            yield Row(f"{batch}x{size}, {way}", what, partial(equal, effort, batch, size, way, goal))
    for way in WAYS:
        what = f"{PROBLEMS} problems of {SIZE} numbers, {SLOW} of which need ten times the steps; to 1e-5, {way}, float32"
        yield Row(f"unequal, {way}", what, partial(unequal, effort, way))


def equal(effort: Effort, batch: int, size: int, way: str, goal: float) -> Figures:
    """The same call with batch_dims=1 and without."""
    network = Network.random(*effort.pick((batch, size), TINY), 0.8)
    W, x = network.W, network.x.requires_grad_()

    def run(batch_dims: int) -> sg.Solution:
        solution = sg.steady_state(
            lambda h, x: torch.tanh(h @ W.T + x), network.start, x, forward=FORWARD, batch_dims=batch_dims, **WAYS[way]
        )
        torch.autograd.grad(solution.value.square().sum(), (W, x))
        return solution

    found = {"without": run(0), "batch_dims=1": run(1)}
    runs: dict[str, Callable[[], object]] = {"without": partial(run, 0), "batch_dims=1": partial(run, 1)}
    counts = {name: [s.steps, s.adjoint.products if s.adjoint else 0] for name, s in found.items()}
    return {"goal": goal, "counts": counts, "times": race(runs, effort)}


class Unequal:
    """F(h, x, a) = tanh(a h Wᵀ + x) with W orthogonal and a factor a of each problem; counts the rows that F is called with."""

    def __init__(self, problems: int, slow: int, size: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        Q = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]
        self.W = Q.to(dtype).requires_grad_()
        self.x = (0.1 * torch.randn(problems, size, generator=generator, dtype=torch.float64)).to(dtype)
        self.a = torch.full((problems, 1), QUICK, dtype=dtype)
        self.a[torch.randperm(problems, generator=generator)[:slow]] = TEDIOUS
        self.rows = 0

    def __call__(self, h: Tensor, x: Tensor, a: Tensor) -> Tensor:
        self.rows += len(h)
        return torch.tanh(a * (h @ self.W.T) + x)

    def gradient(self, way: str, **options: Any) -> Tensor:
        solution = sg.steady_state(self, torch.zeros_like(self.x), self.x, self.a, **options, **WAYS[way])
        return torch.autograd.grad(solution.value.square().sum(), self.W)[0]

    def held(self, way: str) -> Tensor:
        """x and a closed over: each problem has its own end, but none can be dropped."""
        solution = sg.steady_state(
            lambda h: self(h, self.x, self.a), torch.zeros_like(self.x), forward=FORWARD, batch_dims=1, **WAYS[way]
        )
        return torch.autograd.grad(solution.value.square().sum(), self.W)[0]


def unequal(effort: Effort, way: str) -> Figures:
    """Together: one problem of all rows, which ends by their common norm; held: each row ends by itself, all are computed;
    apart: those that have ended are dropped."""
    sizes = effort.pick((PROBLEMS, SLOW, SIZE), (16, 2, 8))
    problem = Unequal(*sizes, torch.float32)
    runs: dict[str, Callable[[], Tensor]] = {
        "together": partial(problem.gradient, way, forward=FORWARD),
        "held": partial(problem.held, way),
        "apart": partial(problem.gradient, way, forward=FORWARD, batch_dims=1),
    }
    exact = Unequal(*sizes, torch.float64).gradient("auto", forward=sg.Picard(max_steps=LIMIT, rtol=RTOL**2), batch_dims=1)
    errors, evaluated = {}, {}
    for name, run in runs.items():
        problem.rows = 0
        errors[name] = short(error(run(), exact))
        evaluated[name] = problem.rows
    return {
        "goal": GOAL_APART,
        "errors": errors,
        "rows_evaluated": evaluated,
        "times": race(runs, effort, drop_slower_than=FAR_BEHIND),
    }
