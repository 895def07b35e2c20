"""The reference: build J and factorise I − Jᵀ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import trusted_in
from steadygrad.iteration.error import Errors
from steadygrad.iteration.norms import norms
from steadygrad.linear.certify import SINGLE, beyond_rounding, by_rounding
from steadygrad.linear.solver import AdjointSolver, default_rtol
from steadygrad.linear.system import LinearSolution, precision_of
from steadygrad.solution import Status
from steadygrad.update.jacobian import NoSecondDerivativeError
from steadygrad.update.linear_map import Linear

ATTAINABLE = 100.0
"""LU reaches the default tolerance of the iterative solvers with this much to spare."""


@dataclass(frozen=True, repr=False)
class Dense(AdjointSolver):
    """z = (I − Jᵀ)⁻¹ b by LU. Needs that I−J is invertible; n + 1 products and n² memory for a state of n numbers.

    For references, tests and small states. A singular system gets its least-squares solution, and says so. The last product
    confirms z: the columns of J are products with all problems at once, and say nothing of an F that couples them, or that is
    not as precise as its dtype.
    """

    @property
    def counts(self) -> bool:
        return False

    def solve(self, jacobian: Linear, b: Tensor, z: Tensor | None = None) -> LinearSolution:
        """Solve (I − Jᵀ) z = b for every row of b; a start changes nothing here."""
        precision = precision_of(jacobian, b)
        scale = b.abs().amax(dim=1, keepdim=True)
        scale = torch.where((scale > 0) & scale.isfinite(), scale, torch.ones_like(scale))
        b = b / scale
        system = torch.eye(b.shape[1], dtype=b.dtype, device=b.device) - jacobian.dense().mT
        lu, pivots, info = torch.linalg.lu_factor_ex(system)
        solution = torch.linalg.lu_solve(lu, pivots, b.unsqueeze(2))
        r = _residual(jacobian, system, b, solution)
        e = torch.linalg.lu_solve(lu, pivots, r)
        singular = info != 0
        if singular.any() and system.isfinite().all() and b.isfinite().all():
            fallback = torch.linalg.pinv(system) @ b.unsqueeze(2)
            solution = torch.where(singular.view(-1, 1, 1), fallback, solution)
            r = _residual(jacobian, system, b, solution)
        size, length = norms(b), norms(solution.squeeze(2))
        residual = [n / s if s else 0.0 for n, s in zip(norms(r.squeeze(2)), size, strict=True)]
        error = [n / s if s else 0.0 for n, s in zip(norms(e.squeeze(2)), length, strict=True)]
        growth = [n / s if s else 0.0 for n, s in zip(length, size, strict=True)]
        lost = [s or beyond_rounding(g, precision) for s, g in zip(singular.expand(len(size)).tolist(), growth, strict=True)]
        attainable = max(ATTAINABLE * default_rtol(precision), SINGLE)
        status = [_judged(s, r <= attainable, e, precision) for s, r, e in zip(lost, residual, error, strict=True)]
        errors = Errors.known(error)
        errors.at_least(by_rounding(growth, precision))
        return LinearSolution(solution.squeeze(2) * scale, status, residual, errors)


def _residual(jacobian: Linear, system: Tensor, b: Tensor, z: Tensor) -> Tensor:
    """b − (I − Jᵀ) z by a product of its own; by the matrices that were built where F has none, as Jv of a fused kernel."""
    try:
        return b.unsqueeze(2) - z + jacobian.vjp(z.squeeze(2)).unsqueeze(2)
    except NoSecondDerivativeError:
        return b.unsqueeze(2) - system @ z


def _judged(lost: bool, solved: bool, error: float, precision: torch.dtype) -> Status:
    if not math.isfinite(error) and not lost:
        return Status.NONFINITE
    return Status.CONVERGED if solved and not lost and error < trusted_in(precision) else Status.STAGNATED
