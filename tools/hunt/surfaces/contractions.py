"""Problems with a smooth update and a steady state that is easy to find, for what is built around the solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from drawing import Draw
from torch import Tensor

import steadygrad as sg
from surfaces.maps import Map, drawn_map


@dataclass
class Problem(Map):
    """A map whose damped form has a steady state."""

    batch_dims: int = 0
    by_args: bool = False
    """Whether an input of each problem is given as an argument, to be dropped with it."""

    def solve(self, given: list[Tensor], start: Tensor | None = None, **options: Any) -> sg.Solution:
        part, update = self.nested(given)
        return sg.steady_state(update, part(self.start if start is None else start), **options)

    def polished(self, h: Tensor) -> Tensor:
        """The steady state near h, by Newton."""
        v = h.detach().double()
        for _ in range(30):
            J = self.jacobian(v)
            d = torch.linalg.solve(torch.eye(len(J), dtype=J.dtype) - J, (self.image(v) - v).reshape(-1)).view(v.shape)
            v = v + d
            if d.norm() <= 1e-13 * v.norm():
                break
        return v

    def image(self, h: Tensor) -> Tensor:
        return self.update(h, [p.detach() for p in self.parameters]).detach()

    def jacobian(self, h: Tensor) -> Tensor:
        held = [p.detach() for p in self.parameters]
        return torch.autograd.functional.jacobian(lambda v: self.update(v.view(h.shape), held).reshape(-1), h.reshape(-1))

    def implicit(self, h: Tensor, b: Tensor) -> list[Tensor]:
        """bᵀ dh*/dp at a steady state."""
        given = [p.detach().requires_grad_() for p in self.parameters]
        J = self.jacobian(h)
        z = torch.linalg.solve(torch.eye(len(J), dtype=J.dtype) - J.mT, b.reshape(-1)).view(h.shape)
        return list(torch.autograd.grad(self.update(h, given), given, z, allow_unused=True, materialize_grads=True))


TRIES = 50
"""Steps by which a map is tried for contraction before it is made weaker."""


def contraction(draw: Draw, largest: int = 7) -> Problem:
    """A map of `maps`, made weaker until it contracts where it ends: h ← s·F(h) + (1 − s)·c."""
    made = drawn_map(draw, largest)
    inner, strength = made.update, draw.number(0.4, 1.0)
    while True:
        problem = Problem(
            made.name, _weaker(inner, strength), made.parameters, made.start, made.rows, made.parts,
            batch_dims=1 if made.rows and draw.happens(0.7) else 0,
        )  # fmt: skip
        h = made.start
        for _ in range(TRIES):
            h = problem.image(h)
        if h.isfinite().all() and torch.linalg.eigvals(problem.jacobian(h)).abs().max() < 0.9:
            return problem
        strength *= 0.7


def _weaker(inner: Any, strength: float) -> Any:
    return lambda h, p: strength * inner(h, p) + (1 - strength) * 0.3
