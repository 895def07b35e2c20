"""A coupled iteration that can be run backwards."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.method import check_count, check_number


class Coupled(NamedTuple):
    """The two states, and F(y) − y."""

    y: Tensor
    z: Tensor
    residual: Tensor | None


KEPT_DIGITS = {torch.float32: 1e-4, torch.float64: 1e-9}
"""How far off a state may be that was reconstructed over the steps between two that were kept, relative to its size."""


@dataclass(frozen=True, repr=False)
class Reversible(FixedPointSolver):
    """y ← d·y + (1 − d)·F(z), then z ← d·z + (1 − d)·F(y), from y = z = h0, d being `damping`. Two evaluations of F a step.

    Its steady state is that of F, y = z = h*. Each step can be undone, z ← (z − (1−d)·F(y)) / d, then y ← (y − (1−d)·F(z)) / d,
    so that `gradient=BPTT()` is exact in the memory of one step: it undoes the steps instead of keeping them. Undoing divides
    rounding errors by d and adds F's own share, a factor of about λ a step (`growth`), and a map that contracts has forgotten
    its start: with d = 0.5, float32 has lost it after some ten steps. So a state is kept every few steps, `every="auto"` of
    them by λ and the dtype, and the distance of what was reconstructed from what was kept is the certificate; `every=None`
    keeps the start alone. For long runs `Picard` with `BPTT(memory="sqrt")` takes the same work and less memory.
    "Reversible deep equilibrium models", arXiv 2509.12917 (its β is 1 − d).

    >>> Reversible(max_steps=8, rtol=0, damping=0.8)
    Reversible(max_steps=8, rtol=0, damping=0.8)
    """

    calls: ClassVar[int] = 2
    damping: float = 0.5
    every: int | Literal["auto"] | None = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("damping", self.damping)
        if not (0 < self.damping < 1):
            raise ValueError(f"damping must be above 0, to divide by it when steps are undone, and below 1; got {self.damping}.")
        if self.every is not None and self.every != "auto":
            check_count("every", self.every, least=1)

    @property
    def growth(self) -> float:
        """λ, by which an error grows when a step is undone, at most, for a map with ‖J‖ = 1.

        The larger root of λ² − (2/d + ((1 − d)/d)²)·λ + 1/d² = 0: (e_y, e_z) ↦ ((e_y + (1−d)·e_z')/d, e_z') with
        e_z' = (e_z + (1−d)·e_y)/d. 4 for d = 0.5, 1.25 for d = 0.9.
        """
        d = self.damping
        half = (2 / d + ((1 - d) / d) ** 2) / 2
        return half + math.sqrt(max(half**2 - 1 / d**2, 0.0))

    def distance(self, dtype: torch.dtype) -> int | None:
        """Steps from one kept state to the next; None where the start alone is kept."""
        if self.every != "auto":
            return self.every
        room = KEPT_DIGITS.get(dtype, 1e-4) / torch.finfo(dtype).eps
        return max(1, int(math.log(room) / math.log(self.growth)))

    def init(self, problem: Callable[[Tensor], Tensor], start: Tensor) -> Coupled:
        return Coupled(start, start, None)

    def step(self, problem: Callable[[Tensor], Tensor], state: Coupled) -> Coupled:
        y = torch.lerp(problem(state.z), state.y, self.damping)
        image = problem(y)
        return Coupled(y, torch.lerp(image, state.z, self.damping), image - y)

    def value(self, state: Coupled) -> Tensor:
        return state.z

    def residual(self, state: Coupled) -> Tensor | None:
        """F(y) − y: not F(y) − z, which vanishes on a cycle of two states as well."""
        return state.residual

    def point(self, state: Coupled) -> Tensor:
        return state.y

    def carried(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A step evaluates F at z, and the last one did so at its y."""
        z, y = inputs
        return y, z

    def reached(self, state: Coupled) -> tuple[Tensor, ...]:
        return state.y, state.z

    def resumed(self, carried: tuple[Tensor, ...]) -> Coupled:
        return Coupled(carried[0], carried[1], None)
