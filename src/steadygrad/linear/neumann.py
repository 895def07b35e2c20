"""Neumann-RBP: the truncated Neumann series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadygrad.linear.solver import LinearSolver, System


class Sum(NamedTuple):
    """The terms so far, and the next one, which is the residual of their sum."""

    z: Tensor
    v: Tensor


@dataclass(frozen=True, repr=False)
class Neumann(LinearSolver):
    """Neumann-RBP: z = Σ_{k≤K} (Jᵀ)ᵏ b. Converges iff ρ(J) < 1. One product a term. Liao et al. 2018, Algorithm 2.

    `Neumann(steps=K)` has K+1 terms: it equals K+1 steps of RBP from zero and K+1 steps of truncated BPTT at a steady
    state. `Neumann(rtol=1e-6)` adds terms until the residual is small enough.
    """

    @property
    def exact_residual(self) -> bool:
        return True

    def tolerance(self, precision: torch.dtype) -> tuple[int, float | None, float]:
        limit, rtol, atol = super().tolerance(precision)
        return limit + 1, rtol, atol  # K+1 terms

    def init(self, problem: System, start: Tensor) -> Sum:
        return Sum(start, problem.residual(start))

    def step(self, problem: System, state: Sum) -> Sum:
        z, v = state
        return Sum(z + v, problem.vjp(v))

    def value(self, state: Sum) -> Tensor:
        return state.z

    def residual(self, state: Sum) -> Tensor:
        return state.v

    def several(self, problem: Any, state: Sum, steps: int) -> Sum:
        return Sum(*problem.add_terms(state.z, state.v, steps))
