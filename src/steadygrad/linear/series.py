"""The truncated Neumann series as what is left to give where a solve has failed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from steadygrad.iteration.norms import norms
from steadygrad.linear.system import LinearSolution
from steadygrad.solution import Status
from steadygrad.state.rows import norm
from steadygrad.state.shards import greatest, rows_everywhere
from steadygrad.update.linear_map import Linear

TERMS = 20
"""Terms that are tried at the most: the series either falls within these or does not."""
LOST = 0.5
"""A solution whose estimated error exceeds this has less in common with the true one than the series has."""


def best_series(jacobian: Linear, b: Tensor, terms: int = TERMS) -> Tensor:
    """Σ_{k<K} (Jᵀ)ᵏ b with K ≥ 1 where the residual (Jᵀ)ᴷ b is the smallest, row by row. At most `terms` products."""
    z, v = torch.zeros_like(b), b
    best, smallest = b, torch.full_like(b[:, :1], torch.inf)
    for _ in range(terms):
        z, v = z + v, jacobian.vjp(v)
        size = norm(v)
        better = size < smallest
        best, smallest = torch.where(better, z, best), torch.where(better, size, smallest)
        if not better.any():
            break
    return best


def instead_of_what_failed(solved: LinearSolution, jacobian: Linear, b: Tensor, lost: float = LOST) -> LinearSolution:
    """The solution with the truncated series in the rows that failed with an estimated error above `lost`."""
    rows = [
        i
        for i, (status, error) in enumerate(zip(solved.status, solved.error, strict=True))
        if status not in (Status.CONVERGED, Status.NONFINITE) and not error <= lost
    ]
    if not rows:
        return solved
    scale = greatest(b.abs().amax(dim=1, keepdim=True))
    scale = torch.where((scale > 0) & scale.isfinite(), scale, torch.ones_like(scale))
    series = best_series(jacobian, b / scale) * scale
    mask = torch.zeros_like(b[:, :1], dtype=torch.bool)
    mask[rows] = True
    z = torch.where(mask & rows_everywhere(series.isfinite().all(dim=1, keepdim=True)), series, solved.z)
    left, size = norms((b - z + jacobian.vjp(z)) / scale), norms(b / scale)
    residual = [left[i] / size[i] if i in rows and size[i] else r for i, r in enumerate(solved.residual)]
    return replace(solved, z=z, residual=residual)
