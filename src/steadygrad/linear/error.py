"""How far z is from the solution, from what a solve has already computed: no product is spent here.

The residual r = b − (I−Jᵀ)z and the error e = z* − z obey (I−Jᵀ)e = r, so the error is the residual times a gain that
depends on its direction: one number for all directions, as a condition number is, would be wrong by orders of magnitude.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class ErrorEstimate(ABC):
    """Estimates of ‖z − z*‖ / ‖z*‖, one a problem."""

    @abstractmethod
    def values(self) -> list[float]:
        """The estimates."""

    def exceeds(self, limit: float) -> list[bool]:
        """Which estimates are above a limit; may be cheaper than the values where all are far below."""
        return [not value <= limit for value in self.values()]


@dataclass(frozen=True)
class Known(ErrorEstimate):
    """Estimates that are numbers already."""

    numbers: list[float]

    def values(self) -> list[float]:
        return self.numbers


def from_gain(gain: Tensor, r: Tensor, z: Tensor) -> Known:
    """‖e‖ / ‖z + e‖ for a solver that knows its gain ‖e‖/‖r‖ (problems, 1), taking e orthogonal to z."""
    sizes = torch.linalg.vector_norm(torch.stack([r, z]), dim=2).tolist()
    return Known([_ratio(g * r if r else 0.0, z) for g, r, z in zip(gain.flatten().tolist(), *sizes, strict=True)])


def _ratio(e: float, z: float) -> float:
    whole = math.hypot(e, z)
    return math.inf if math.isnan(whole) else e / whole if whole else 0.0


@dataclass(frozen=True)
class Extrapolated(ErrorEstimate):
    """‖e‖ / ‖z + e‖ from the last residuals r_{k−m}, …, r_k of a stationary iteration z_{j+1} = z_j + r_j.

    Every step gives a pair (I−Jᵀ) r_j = r_j − r_{j+1}. The part of r_k in the span of the right sides is inverted exactly
    (reduced rank extrapolation); the rest is given the largest gain met in that span. Valid also for a damped iteration,
    whose steps are proportional to r_j. All of it follows from one Gram matrix, which is all that is kept; the small
    algebra waits until somebody asks, since it would cost as much as several products.
    """

    gram: Tensor
    """(problems, m + 2, m + 2), in float64, of r_{k−m}, …, r_k and z."""

    @classmethod
    def of(cls, residuals: list[Tensor], z: Tensor) -> Extrapolated:
        vectors = torch.stack([*residuals, z], dim=1).double()
        return cls(vectors @ vectors.mT)

    def exceeds(self, limit: float) -> list[bool]:
        quick = self.gram[:, -3:, -3:].tolist()
        if all(self._last_step(row) < limit / 30 for row in quick):
            return [False] * len(quick)
        return super().exceeds(limit)

    @staticmethod
    def _last_step(gram: list[list[float]]) -> float:
        """The estimate with m = 1: ‖r_k‖ ‖r_{k−1}‖ / ‖r_{k−1} − r_k‖, relative to z."""
        (aa, ar, _), (_, rr, _), (_, _, zz) = gram
        change = aa - 2 * ar + rr
        return math.sqrt(rr * aa / (change * zz)) if change > 0 and zz > 0 else math.inf

    def values(self) -> list[float]:
        gram = self.gram
        m = gram.shape[1] - 2
        steps = gram[:, :m, :m]
        to_images = torch.eye(m, m + 2, dtype=gram.dtype, device=gram.device)
        to_images = to_images - to_images.roll(1, dims=1)  # r_j − r_{j+1}
        images = to_images @ gram @ to_images.mT
        noise = _NOISE * images.diagonal(dim1=1, dim2=2) + torch.finfo(gram.dtype).tiny
        inverse = torch.linalg.inv_ex(images + torch.diag_embed(noise)).inverse

        along = to_images @ gram[:, :, m : m + 1]
        combination = inverse @ along  # the extrapolated error, in terms of the steps
        inside = (combination.mT @ steps @ combination).flatten()
        rest = gram[:, m, m] - (combination.mT @ along).flatten()
        gain = (inverse * steps).sum(dim=(1, 2))
        shifted = gram[:, -1, -1] + 2 * (gram[:, -1:, :m] @ combination).flatten() + inside
        return [_relative(*row) for row in torch.stack([inside, rest, gain, shifted], dim=1).tolist()]


_NOISE = 1e-9
"""Directions of the span weaker than this (in the square, relative to the steps) are noise."""


def _relative(inside: float, rest: float, gain: float, shifted: float) -> float:
    beyond = max(rest, 0.0) * (gain if gain > 0 else 1.0)
    size = shifted + beyond
    if not math.isfinite(size):
        return math.inf
    return math.sqrt(max(inside + beyond, 0.0) / size) if size > 0 else 0.0
