"""Neumann-RBP: the truncated Neumann series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from steadygrad.iteration.gain import Gains, gains_by_products
from steadygrad.iteration.strides import Measured
from steadygrad.linear.solver import LinearSolver
from steadygrad.linear.system import System


class Sum(NamedTuple):
    """The terms so far, the next one, which is the residual of their sum, and the last few terms with their images."""

    z: Tensor
    v: Tensor
    seen: tuple[tuple[Tensor, Tensor], ...] = ()
    """(v, Jᵀv), of any shape."""


@dataclass(frozen=True, repr=False)
class Neumann(LinearSolver):
    """Neumann-RBP: z = Σ_{k≤K} (Jᵀ)ᵏ b. Converges iff ρ(J) < 1. One product a term. Liao et al. 2018, Algorithm 2.

    `Neumann(steps=K)` has K+1 terms: it equals K+1 steps of RBP from zero and K+1 steps of truncated BPTT at a steady
    state. `Neumann(rtol=1e-6)` adds terms until the residual is small enough.
    """

    window: ClassVar[int] = 6
    """Products kept for the estimate of the error: with fewer, five modes of one modulus would not be seen; each takes the
    memory of a state."""

    @property
    def exact_residual(self) -> bool:
        return True

    def tolerance(self, precision: torch.dtype) -> tuple[int, float | None, float]:
        limit, rtol, atol = super().tolerance(precision)
        return limit + 1, rtol, atol  # K+1 terms

    def init(self, problem: System, start: Tensor) -> Sum:
        return Sum(start, problem.residual(start))

    def step(self, problem: System, state: Sum) -> Sum:
        z, v, seen = state
        image = problem.vjp(v)
        return Sum(z + v, image, (*seen[1 - self.window :], (v, image)))

    def value(self, state: Sum) -> Tensor:
        return state.z

    def residual(self, state: Sum) -> Tensor:
        return state.v

    def keep_for_value(self, state: Sum) -> Sum:
        return Sum(state.z, state.z)  # only the sum is asked for

    def gain(self, state: Sum) -> Gains:
        """From the last few products: I − Jᵀ takes v to v − Jᵀv."""
        return gains_by_products(list(state.seen), state.v, state.z)

    def cheap(self, state: Sum) -> bool:
        return True

    def measured(self, problem: System) -> Measured | None:
        if problem.norms is None:
            return None
        before, now = problem.norms.tolist()
        return Measured((before, before), (before, before), (now, now))

    def several(self, problem: System, state: Sum, steps: int) -> list[Sum]:
        # What is not needed any more is let go first: each vector takes the memory of a state.
        seen = state.seen[steps - self.window :] if steps < self.window else ()
        sum_and_term = [state.z, state.v]
        del state
        z, v, pairs = problem.add_terms(sum_and_term.pop(0), sum_and_term.pop(0), steps, self.window)
        return [Sum(z, v, (*seen, *pairs)[-self.window :])]
