"""Picard iteration: apply F until nothing moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.watch import Iterate, Iterates


@dataclass(frozen=True, repr=False)
class Picard(FixedPointSolver):
    """h ← (1 − damping)·F(h) + damping·h. Converges from nearby iff ρ((1−d)J + d·I) < 1. One evaluation of F a step.

    On the adjoint equation z = Jᵀz + b it is original recurrent back-propagation (Almeida 1987, Pineda 1987; Liao et al.
    2018, Algorithm 1): `Implicit(Picard(max_steps=100), initial="uniform")`, with ε as `atol`.

    >>> Picard(max_steps=50, rtol=1e-6)
    Picard(max_steps=50, rtol=1e-06)
    """

    damping: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.damping < 1):
            raise ValueError(f"damping must be at least 0 and below 1; got {self.damping}.")

    def iterates(self, update: Callable[[Tensor], Tensor], h: Tensor) -> Iterates:
        while True:
            image = update(h)
            new = torch.lerp(image, h, self.damping) if self.damping else image
            rows = yield Iterate(new, lambda image=image, h=h: image - h, point=h if self.damping else None)
            h = new if rows is None else new[rows]
