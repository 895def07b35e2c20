"""Picard iteration: apply F until nothing moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.iteration.strides import Measured
from steadygrad.method import check_number


class LastTwo(NamedTuple):
    """A state and the one before it."""

    h: Tensor
    before: Tensor | None
    native: bool = False
    """Whether they are a single problem in the shape that F knows, and no matrices."""


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
        check_damping(self.damping)

    def init(self, problem: Callable[[Tensor], Tensor], start: Tensor) -> LastTwo:
        native: Callable[[Tensor], Tensor] | None = getattr(problem, "native", None)
        h = start if native is None else native(start)
        return LastTwo(h, None, h is not start)

    def step(self, problem: Callable[[Tensor], Tensor], state: LastTwo) -> LastTwo:
        image = problem(state.h)
        return LastTwo(torch.lerp(image, state.h, self.damping) if self.damping else image, state.h, state.native)

    def value(self, state: LastTwo) -> Tensor:
        return state.h.reshape(1, -1) if state.native else state.h

    def vector(self, state: LastTwo) -> Tensor:
        return state.h

    def residual(self, state: LastTwo) -> Tensor | None:
        if state.before is None:
            return None
        moved = state.h - state.before
        return moved / (1 - self.damping) if self.damping else moved

    def keep_for_value(self, state: LastTwo) -> LastTwo:
        return LastTwo(state.h, None, state.native)

    def point(self, state: LastTwo) -> Tensor:
        """F was evaluated at the state before; the value lies one step ahead."""
        return state.h if state.before is None else state.before

    def carried(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return inputs[:1]

    def reached(self, state: LastTwo) -> tuple[Tensor, ...]:
        return (self.value(state),)

    def resumed(self, carried: tuple[Tensor, ...]) -> LastTwo:
        return LastTwo(carried[0], None)

    def advanced(self, problem: Any, carried: tuple[Tensor, ...], steps: int) -> tuple[Tensor, ...]:
        return (problem.advance(carried[0], steps, self.damping)[0],)

    def cheap(self, state: LastTwo) -> bool:
        return True

    def measured(self, problem: Any) -> Measured | None:
        norms: Tensor | None = getattr(problem, "norms", None)
        if norms is None:
            return None
        found = [norm if i % 2 else norm / (1 - self.damping) for i, norm in enumerate(norms.tolist())]
        return Measured((found[0], found[1]), (found[2], found[3]), (found[4], found[5]))

    def several(self, problem: Any, state: LastTwo, steps: int) -> list[LastTwo]:
        newest = problem.advance(state.h, steps, self.damping)
        return [LastTwo(h, before, state.native) for before, h in pairwise(reversed(newest))]


def check_damping(damping: float) -> None:
    """Refuse what is no share of the old state."""
    check_number("damping", damping)
    if not (0 <= damping < 1):
        raise ValueError(f"damping must be at least 0 and below 1; got {damping}.")
