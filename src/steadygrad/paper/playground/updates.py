"""Updates to be diagnosed, chosen from a list and changed by two sliders. No code comes from the page."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.api import steady_state
from steadygrad.diagnose import Diagnosis, diagnose
from steadygrad.fixedpoint import Picard

SIZE = 12
STEPS = 300
Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Kind:
    """A family of updates: what it is, its two sliders, and how one is made."""

    about: str
    strength: tuple[str, float, float, float]
    """name, least, most, at first"""
    make: Callable[[float], Map]


def _drawn() -> Tensor:
    return torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def _shift() -> Tensor:
    return torch.linspace(-1, 1, SIZE, dtype=torch.float64)


def _scaled(J: Tensor, radius: float) -> Tensor:
    return J * (radius / torch.linalg.eigvals(J).abs().max())


def contraction(radius: float) -> Map:
    W = _scaled(_drawn() + _drawn().T, radius)
    return lambda h: torch.tanh(W @ h + _shift())


def rotation(radius: float) -> Map:
    turn = torch.tensor([[math.cos(1.0), -math.sin(1.0)], [math.sin(1.0), math.cos(1.0)]], dtype=torch.float64)
    J = radius * torch.kron(torch.eye(SIZE // 2, dtype=torch.float64), turn)
    return lambda h: J @ h + _shift()


def non_normal(size: float) -> Map:
    J = 0.5 * torch.eye(SIZE, dtype=torch.float64) + size * torch.diag(torch.ones(SIZE - 1, dtype=torch.float64), 1)
    return lambda h: J @ h + _shift()


def cycle(rate: float) -> Map:
    return lambda h: rate * h * (1 - h)  # the logistic map: at rest up to 3, then period 2, 4, … and chaos


def slow(remaining: float) -> Map:
    return lambda h: h + remaining * (_shift() - h)


def detached(share: float) -> Map:
    W = _scaled(_drawn(), 0.7)
    return lambda h: torch.tanh(W @ ((1 - share) * h + share * h.detach()) + _shift())


KINDS: dict[str, Kind] = {
    "a contraction": Kind("h ← tanh(W h + x), W symmetric", ("ρ(W)", 0.1, 1.5, 0.8), contraction),
    "a rotation": Kind("six planes, each turned by one radian and shrunk", ("ρ(J)", 0.1, 1.2, 0.9), rotation),
    "a non-normal map": Kind("a chain: ρ(J) = 0.5 whatever ‖J‖ is", ("coupling", 0.0, 2.0, 1.0), non_normal),
    "a cycle": Kind("the logistic map h ← r h (1 − h)", ("r", 1.5, 4.0, 3.2), cycle),
    "a slow map": Kind("h ← h + ε (x − h)", ("ε", 0.0005, 0.2, 0.002), slow),
    "a detached path": Kind("autograd sees a share of h only", ("share detached", 0.0, 1.0, 0.5), detached),
}


def examine(kind: str, strength: float, steps: int) -> Diagnosis:
    """Iterate for a number of steps and diagnose where that ends."""
    if kind not in KINDS:
        raise ValueError(f"unknown update {kind!r}; known: {', '.join(KINDS)}.")
    _, least, most, _ = KINDS[kind].strength
    update = KINDS[kind].make(min(max(strength, least), most))
    start = torch.full((SIZE,), 0.3, dtype=torch.float64)
    forward = Picard(max_steps=min(max(int(steps), 1), STEPS), rtol=0)
    solution = steady_state(update, start, forward=forward, on_failure="ignore")
    return diagnose(update, solution.value.detach(), quick=True)
