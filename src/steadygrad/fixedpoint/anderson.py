"""Anderson acceleration: extrapolate from the last few states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.method import check_count
from steadygrad.watch import Iterate, Iterates


@dataclass(frozen=True, repr=False)
class Anderson(FixedPointSolver):
    """h ← Σ αᵢ (hᵢ + mixing·fᵢ) with fᵢ = F(hᵢ) − hᵢ and α minimising ‖Σ αᵢ fᵢ‖, Σ αᵢ = 1. One evaluation of F a step.

    Often converges where the plain iteration is slow or diverges. Memory: 2·`history` states. On the adjoint equation it is
    nearly GMRES. Anderson 1965; Walker and Ni 2011.
    """

    history: int = 5
    mixing: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("history", self.history, least=1)
        if not (0 < self.mixing <= 1):
            raise ValueError(f"mixing must be above 0 and at most 1; got {self.mixing}.")

    def iterates(self, update: Callable[[Tensor], Tensor], h: Tensor) -> Iterates:
        steps: list[Tensor] = []
        changes: list[Tensor] = []
        f = update(h) - h
        while True:
            new = h + self.mixing * f
            if steps:
                dh, df = torch.stack(steps, dim=1), torch.stack(changes, dim=1)
                gamma = least_squares(df, f)
                new = new - (gamma.unsqueeze(1) @ (dh + self.mixing * df)).squeeze(1)
            rows = yield Iterate(new, lambda f=f: f, point=h)
            if rows is not None:
                h, f, new = h[rows], f[rows], new[rows]
                steps, changes = [s[rows] for s in steps], [c[rows] for c in changes]
            after = update(new) - new
            steps, changes = [*steps, new - h][-self.history :], [*changes, after - f][-self.history :]
            h, f = new, after


def least_squares(columns: Tensor, f: Tensor) -> Tensor:
    """argmin_γ ‖f − Σ γᵢ columnsᵢ‖ for each row, with directions that are noise left out."""
    scale = torch.linalg.vector_norm(columns, dim=2, keepdim=True)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    unit = columns / scale
    gram = (unit @ unit.mT).double()
    ridge = 10 * torch.finfo(f.dtype).eps * torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
    gamma = torch.linalg.solve_ex(gram + ridge, (unit @ f.unsqueeze(2)).double()).result
    return (gamma.to(f.dtype) / scale).squeeze(2)
