"""Broyden's method with limited memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.method import check_count
from steadygrad.watch import Iterate, Iterates


@dataclass(frozen=True, repr=False)
class Broyden(FixedPointSolver):
    """A quasi-Newton method for F(h) − h = 0: h ← h + B f, B ← B + (s − B y) sᵀB / sᵀB y. One evaluation of F a step.

    B starts as the identity, so that the first step is Picard's. Converges superlinearly near a steady state where I − J is
    invertible. Memory: 2·`history` states; a full memory is forgotten. Broyden 1965, the "good" update.
    """

    history: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("history", self.history, least=1)

    def iterates(self, update: Callable[[Tensor], Tensor], h: Tensor) -> Iterates:
        left: list[Tensor] = []
        right: list[Tensor] = []
        f = update(h) - h
        while True:
            new = h + _apply(left, right, f)
            rows = yield Iterate(new, lambda f=f: f, point=h)
            if rows is not None:
                h, f, new = h[rows], f[rows], new[rows]
                left, right = [u[rows] for u in left], [v[rows] for v in right]
            after = update(new) - new
            if len(left) == self.history:
                left, right = [], []
            s, y = new - h, f - after  # B approximates the inverse of −∂(F − id)
            by = _apply(left, right, y)
            v = _apply(right, left, s)  # Bᵀ s
            scale = (s * by).sum(dim=1, keepdim=True)
            usable = scale.abs() > torch.finfo(f.dtype).eps * (s.norm(dim=1) * by.norm(dim=1)).unsqueeze(1)
            left.append(torch.where(usable, (s - by) / scale, torch.zeros_like(s)))
            right.append(v)
            h, f = new, after


def _apply(left: list[Tensor], right: list[Tensor], x: Tensor) -> Tensor:
    """(I + Σ uᵢ vᵢᵀ) x, row by row."""
    result = x
    for u, v in zip(left, right, strict=True):
        result = result + u * (v * x).sum(dim=1, keepdim=True)
    return result
