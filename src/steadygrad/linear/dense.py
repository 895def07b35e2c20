"""The reference: build J and factorise I − Jᵀ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import norms
from steadygrad.jacobian import Linear
from steadygrad.linear.error import Known
from steadygrad.linear.solver import TRUSTED_ERROR, LinearSolution, beyond_rounding, default_rtol
from steadygrad.method import Method
from steadygrad.solution import Status


@dataclass(frozen=True, repr=False)
class Dense(Method):
    """z = (I − Jᵀ)⁻¹ b by LU. Needs that I−J is invertible; n products and n² memory for a state of n numbers.

    For references, tests and small states. A singular system gets its least-squares solution, and says so.
    """

    @property
    def counts(self) -> bool:
        return False

    def solve(self, jacobian: Linear, b: Tensor, z: Tensor | None = None, few: int = 0) -> LinearSolution:
        """Solve (I − Jᵀ) z = b for every row of b; neither a start nor `few` changes anything here."""
        scale = b.abs().amax(dim=1, keepdim=True)
        scale = torch.where((scale > 0) & scale.isfinite(), scale, torch.ones_like(scale))
        b = b / scale
        system = torch.eye(b.shape[1], dtype=b.dtype, device=b.device) - jacobian.dense().mT
        lu, pivots, info = torch.linalg.lu_factor_ex(system)
        solution = torch.linalg.lu_solve(lu, pivots, b.unsqueeze(2))
        r = b.unsqueeze(2) - system @ solution
        e = torch.linalg.lu_solve(lu, pivots, r)
        singular = info != 0
        if singular.any() and system.isfinite().all() and b.isfinite().all():
            fallback = torch.linalg.pinv(system) @ b.unsqueeze(2)
            solution = torch.where(singular.view(-1, 1, 1), fallback, solution)
            r = b.unsqueeze(2) - system @ solution
        residual = [n / s if s else 0.0 for n, s in zip(norms(r.squeeze(2)), norms(b), strict=True)]
        error = [n / s if s else 0.0 for n, s in zip(norms(e.squeeze(2)), norms(solution.squeeze(2)), strict=True)]
        attainable = 100 * default_rtol(b.dtype)
        lost = (singular | torch.tensor(beyond_rounding(solution.squeeze(2), norms(b)), device=b.device)).tolist()
        status = [_judged(s, r <= attainable, e) for s, r, e in zip(lost, residual, error, strict=True)]
        return LinearSolution(solution.squeeze(2) * scale, status, residual, Known(error))


def _judged(singular: bool, solved: bool, error: float) -> Status:
    if not math.isfinite(error) and not singular:
        return Status.NONFINITE
    return Status.CONVERGED if solved and not singular and error < TRUSTED_ERROR else Status.STAGNATED
