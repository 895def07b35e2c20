"""(I − Jᵀ) z = b, and what a solver makes of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.iteration.error import Errors
from steadygrad.solution import Status
from steadygrad.update.linear_map import Linear


@dataclass
class System:
    """(I − Jᵀ) z = b, a row a problem: what an adjoint solver is given. `vjp(v)` is Jᵀv and `jvp(v)` is Jv."""

    jacobian: Linear
    b: Tensor
    zero: weakref.ref[Tensor] | None = None
    """The start, where it is known to be zero, so that nobody has to look at its numbers: for as long as somebody else has it."""

    @property
    def at_once(self) -> int:
        """In what numbers several terms of the series can be had at once, by `add_terms`; 0 where they cannot."""
        return getattr(self.jacobian, "at_once", 0)

    @property
    def add_terms(self) -> Callable[[Tensor, Tensor, int, int], tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]]:
        """So many times z ← z + v, v ← Jᵀv, at once; and at most so many vectors that were multiplied, with their products."""
        return self.jacobian.add_terms  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]

    @property
    def norms(self) -> Tensor | None:
        """The norms of the last two terms of the series, where `add_terms` found these on its way."""
        return getattr(self.jacobian, "norms", None)

    def vjp(self, v: Tensor) -> Tensor:
        """Jᵀ v."""
        return self.jacobian.vjp(v)

    def jvp(self, v: Tensor) -> Tensor:
        """J v."""
        return self.jacobian.jvp(v)

    def residual(self, z: Tensor) -> Tensor:
        """b − (I − Jᵀ) z; nothing is multiplied where z is the start from zero."""
        return self.b if self._is_zero(z) else self.b - z + self.jacobian.vjp(z)

    def __call__(self, z: Tensor) -> Tensor:
        """Jᵀz + b, whose fixed point is the solution: the adjoint equation as a forward solver sees it."""
        return self.b if self._is_zero(z) else self.jacobian.vjp(z) + self.b

    def _is_zero(self, z: Tensor) -> bool:
        return self.zero is not None and self.zero() is z

    def part(self, rows: Tensor, value: Tensor) -> System | None:
        """The system of some of the problems; None where J cannot be had for them alone."""
        jacobian = part_of(self.jacobian, rows)
        return None if jacobian is None else System(jacobian, self.b[rows])


def part_of(jacobian: Linear, rows: Tensor) -> Linear | None:
    """J of some of the problems, from a Jacobian that can give it."""
    part: Callable[[Tensor], Linear | None] | None = getattr(jacobian, "part", None)
    return None if part is None else part(rows)


@dataclass
class LinearSolution:
    """z with its certificate, a row a problem."""

    z: Tensor
    status: list[Status]
    residual: list[float]
    """‖b − (I − Jᵀ)z‖ / ‖b‖, the true one."""
    errors: Errors

    @property
    def error(self) -> list[float]:
        """Estimates of ‖z − z*‖ / ‖z*‖."""
        return self.errors.values()


def precision_of(jacobian: Linear, b: Tensor) -> torch.dtype:
    """The dtype in which J computes, where that is coarser than that of b."""
    return getattr(jacobian, "precision", None) or b.dtype
