"""Random problems: what a family of updates is, and what its problems are drawn from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

MANY = 17
"""Rows of a large batch: no other dimension of a family is that long, so what has it belongs to the problems."""


@dataclass
class Family:
    """One problem: F(h, p) with h of shape (rows, …) and float64 parameters p, row by row."""

    update: Callable[[Tensor, list[Tensor]], Tensor]
    parameters: list[Tensor]
    start: Tensor
    steady: bool = True
    """Whether there is a steady state at all."""


class Draw:
    """Everything random of one problem, from one seed."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.rows = self.choice([1, 1, 1, 2, 5, MANY])
        self.size = self.whole(1, 10 if self.rows < MANY else 3)

    def number(self, low: float, high: float) -> float:
        return low + (high - low) * torch.rand((), generator=self._generator, dtype=torch.float64).item()

    def log(self, low: float, high: float) -> float:
        """A number whose logarithm is uniform."""
        return math.exp(self.number(math.log(low), math.log(high)))

    def whole(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self._generator).item())

    def choice(self, options: Sequence[T]) -> T:
        return options[self.whole(0, len(options) - 1)]

    def happens(self, chance: float) -> bool:
        return self.number(0, 1) < chance

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=self._generator, dtype=torch.float64)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator, dtype=torch.float64)

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64)

    def ones(self, *shape: int) -> Tensor:
        return torch.ones(*shape, dtype=torch.float64)


def ring_with_chord(n: int) -> tuple[Tensor, Tensor]:
    """Messages along the edges of a ring with a chord, both ways: whence each comes, and which others arrive there for it."""
    edges = [(i, (i + 1) % n) for i in range(n)] + [(0, n // 2)]
    directed = edges + [(j, i) for i, j in edges]
    arrives = [[float(b == i and a != j) for a, b in directed] for i, j in directed]
    return torch.tensor([i for i, _ in directed]), torch.tensor(arrives, dtype=torch.float64)
