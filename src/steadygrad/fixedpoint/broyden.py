"""Broyden's method with limited memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import Anchors, FixedPointSolver
from steadygrad.method import check_count
from steadygrad.state.rows import dot, dots, norm


class Corrected(NamedTuple):
    """A state, its residual, and the corrections of the inverse: B = I + Σ leftᵢ rightᵢᵀ."""

    h: Tensor
    f: Tensor
    left: tuple[Tensor, ...]
    right: tuple[Tensor, ...]
    anchors: Anchors


@dataclass(frozen=True, repr=False)
class Broyden(FixedPointSolver):
    """A quasi-Newton method for F(h) − h = 0: h ← h + B f, B ← B + (s − B y) sᵀB / sᵀB y. One evaluation of F a step.

    B starts as the identity, so that the first step is Picard's. Converges superlinearly near a steady state where I − J is
    invertible. What it returns is where F was evaluated last. Memory: about 2·`history` + 16 states; a full memory is
    forgotten. Broyden 1965, the "good" update.
    """

    exact_residual: ClassVar[bool] = True
    history: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("history", self.history, least=1)

    def init(self, problem: Callable[[Tensor], Tensor], start: Tensor) -> Corrected:
        return Corrected(start, problem(start) - start, (), (), Anchors())

    def step(self, problem: Callable[[Tensor], Tensor], state: Corrected) -> Corrected:
        h, f, left, right, anchors = state
        new = h + _apply(left, right, f)
        after = problem(new) - new
        if len(left) == self.history:
            left, right = (), ()
        s, y = new - h, f - after  # B approximates the inverse of −∂(F − id)
        by = _apply(left, right, y)
        scale = dot(s, by)
        usable = scale.abs() > torch.finfo(f.dtype).eps * norm(s) * norm(by)
        u = torch.where(usable, (s - by) / scale, torch.zeros_like(s))
        return Corrected(new, after, (*left, u), (*right, _apply(right, left, s)), anchors.after(h, f))

    def value(self, state: Corrected) -> Tensor:
        return state.h

    def residual(self, state: Corrected) -> Tensor:
        return state.f

    def anchors(self, state: Corrected) -> tuple[tuple[Tensor, Tensor], ...]:
        return state.anchors.kept

    def keep_for_residual(self, state: Corrected) -> Corrected:
        return state._replace(left=(), right=())

    def keep_for_value(self, state: Corrected) -> Corrected:
        return self.keep_for_residual(state)


def _apply(left: tuple[Tensor, ...], right: tuple[Tensor, ...], x: Tensor) -> Tensor:
    """(I + Σ uᵢ vᵢᵀ) x, row by row."""
    result = x
    for u, along in zip(left, dots(right, x), strict=True):
        result = result + u * along
    return result
