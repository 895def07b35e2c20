"""One epoch by several gradient methods in turns: what each costs, and how far its gradient is from BPTT's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from steadygrad.paper.experiments.methods import Gradient, short
from steadygrad.peak_memory import peak_memory

COMPARED = ("bptt", "bptt-sqrt", "bptt-log", "tbptt", "cg-rbp", "neumann-rbp")
"""BPTT first: the others are compared with its gradient."""
REPEATS = 5
"""Rounds, of which the fastest counts for each method: what disturbs only adds."""


def in_turns(
    epoch: Callable[[Gradient], int], gradients: Mapping[str, Gradient], weights: list[Tensor], repeats: int = REPEATS
) -> dict[str, dict[str, Any]]:
    """CPU milliseconds of an epoch, MB of tensors at its worst moment, calls of F, and the relative error of the gradient.

    `epoch(method)` runs a forward and a backward pass and returns its calls of F. Every round takes each method once, so that a
    machine that others use slows all of them alike; CPU time of this thread, since it waits for a core besides.
    """

    def run(method: Gradient) -> tuple[int, Tensor]:
        with torch.random.fork_rng(devices=[]):  # the same dropout every time, and the training's own draws as they were
            calls = epoch(method)
        gradient = torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None]).double()
        for weight in weights:
            weight.grad = None
        return calls, gradient

    seconds: dict[str, list[float]] = {name: [] for name in gradients}
    for _ in range(repeats):
        for name, method in gradients.items():
            start = time.thread_time()
            run(method)
            seconds[name].append(time.thread_time() - start)
    found: dict[str, dict[str, Any]] = {}
    exact: Tensor | None = None
    for name, method in gradients.items():
        memory = peak_memory(lambda method=method: run(method))
        calls, gradient = run(method)
        exact = gradient if exact is None else exact
        found[name] = {
            "cpu_ms": short(1e3 * min(seconds[name])),
            "mb": short(memory / 2**20),
            "evaluations": calls,
            "error": short(float((gradient - exact).norm() / exact.norm())),
            "cosine": short(float(gradient @ exact / (gradient.norm() * exact.norm()))),
        }
    return found
