"""Anderson acceleration: extrapolate from the last few states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import Anchors, FixedPointSolver
from steadygrad.method import check_count, check_number
from steadygrad.state.shards import current, total


class Mixed(NamedTuple):
    """A state, its residual, and how both changed over the last steps."""

    h: Tensor
    f: Tensor
    steps: tuple[Tensor, ...]
    changes: tuple[Tensor, ...]
    anchors: Anchors


@dataclass(frozen=True, repr=False)
class Anderson(FixedPointSolver):
    """h ← Σ αᵢ (hᵢ + mixing·fᵢ) with fᵢ = F(hᵢ) − hᵢ and α minimising ‖Σ αᵢ fᵢ‖, Σ αᵢ = 1. One evaluation of F a step.

    Often converges where the plain iteration is slow or diverges. What it returns is where F was evaluated last. Memory:
    about 2·`history` + 16 states. On the adjoint equation it is nearly GMRES. Anderson 1965; Walker and Ni 2011.
    """

    exact_residual: ClassVar[bool] = True
    history: int = 5
    mixing: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("history", self.history, least=1)
        check_number("mixing", self.mixing)
        if not (0 < self.mixing <= 1):
            raise ValueError(f"mixing must be above 0 and at most 1; got {self.mixing}.")

    def init(self, problem: Callable[[Tensor], Tensor], start: Tensor) -> Mixed:
        return Mixed(start, problem(start) - start, (), (), Anchors())

    def step(self, problem: Callable[[Tensor], Tensor], state: Mixed) -> Mixed:
        h, f, steps, changes, anchors = state
        new = h + self.mixing * f
        if steps:
            gamma = least_squares(changes, f)
            for i, (dh, df) in enumerate(zip(steps, changes, strict=True)):
                new = new - gamma[:, i : i + 1] * (dh + self.mixing * df)
        after = problem(new) - new
        recent = slice(1, None) if len(steps) == self.history else slice(None)
        return Mixed(new, after, (*steps[recent], new - h), (*changes[recent], after - f), anchors.after(h, f))

    def value(self, state: Mixed) -> Tensor:
        return state.h

    def residual(self, state: Mixed) -> Tensor:
        return state.f

    def anchors(self, state: Mixed) -> tuple[tuple[Tensor, Tensor], ...]:
        return state.anchors.kept

    def keep_for_residual(self, state: Mixed) -> Mixed:
        return state._replace(steps=(), changes=())

    def keep_for_value(self, state: Mixed) -> Mixed:
        return self.keep_for_residual(state)


def least_squares(columns: tuple[Tensor, ...], f: Tensor) -> Tensor:
    """argmin_γ ‖f − Σ γᵢ columnsᵢ‖ for each row, (rows, columns), with directions that are noise left out."""
    stacked = torch.stack(columns, dim=1)
    scale = lengths(stacked)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    unit = stacked / scale if stacked.requires_grad else stacked.div_(scale)
    gram, along = products(unit, f)
    ridge = 10 * torch.finfo(f.dtype).eps * torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
    gamma = torch.linalg.solve_ex(gram + ridge, along).result
    return (gamma.to(f.dtype) / scale).squeeze(2)


def lengths(stacked: Tensor) -> Tensor:
    """‖v‖ of vectors (problems, count, size), as (problems, count, 1); over all ranks where the state is divided."""
    here = torch.linalg.vector_norm(stacked, dim=2, keepdim=True)
    return here if current() is None else total(here.double().square()).sqrt().to(here.dtype)


def products(unit: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """The inner products of vectors (problems, count, size) with each other and with f, in float64, in one exchange."""
    gram, along = (unit @ unit.mT).double(), (f.unsqueeze(1) @ unit.mT).mT.double()  # row times block: seven times faster
    if current() is None:
        return gram, along
    both = total(torch.cat([gram, along], dim=2))
    return both[:, :, :-1], both[:, :, -1:]
