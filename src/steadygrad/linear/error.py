"""How far z is from the solution, from what a solve has already computed: no product is spent here.

The residual r = b − (I−Jᵀ)z and the error e = z* − z obey (I−Jᵀ)e = r, so the error is the residual times a gain that
depends on its direction: one number for all directions, as a condition number is, would be wrong by orders of magnitude.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

BLOCK = 2**17
"""Numbers copied to float64 at a time: this many, or as many as the state has if that is more."""


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
    """‖e‖ / ‖z + e‖ from the last steps of an iteration.

    Every step s_j from one point to the next changes the residual by −(I−Jᵀ) s_j. The part of r in the span of these
    changes is inverted exactly (reduced rank extrapolation); the rest is given the largest gain met in that span. All of
    it follows from one Gram matrix, which is all that is kept; the small algebra waits until somebody asks, since it would
    cost as much as several products.
    """

    gram: Tensor
    """(problems, m + k + 2, m + k + 2), in float64: m steps, k vectors that span their images, r and z."""
    to_images: Tensor
    """(m, m + k + 2): the images (I−Jᵀ) s_j as combinations of these vectors."""

    rounding: float
    """A residual below this times ‖z‖ is noise, and so are its changes."""

    @classmethod
    def of(cls, trail: list[tuple[Tensor | None, Tensor]], end: tuple[Tensor, Tensor], last: bool) -> Extrapolated:
        """From points with the residuals there, and z with its residual; `last` if z follows upon the trail.

        Points may be missing where z_{j+1} − z_j = r_j.
        """
        z, r = end
        points = [point for point, _ in trail if point is not None]
        residuals = [residual for _, residual in trail]
        if len(points) == len(trail):
            ahead = [*points, z] if last else points
            steps = [after - before for before, after in pairwise(ahead)]
            changes = [before - after for before, after in pairwise([*residuals, r] if last else residuals)]
            m = len(steps)
            vectors = [*steps, *changes, r, z]
            to_images = torch.eye(m, 2 * m + 2, dtype=torch.float64, device=z.device).roll(m, dims=1)
        else:
            m = len(residuals) if last else len(residuals) - 1
            vectors = [*residuals, r, z]
            to_images = torch.eye(m, len(residuals) + 2, dtype=torch.float64, device=z.device)
            to_images = to_images - to_images.roll(1, dims=1)  # r_j − r_{j+1}
        return cls(_gram(vectors), to_images, 2 * torch.finfo(z.dtype).eps)

    def exceeds(self, limit: float) -> list[bool]:
        """A quick look at the last step alone, the estimate with m = 1, settles most cases."""
        m = self.to_images.shape[0]
        if m == 0:
            return super().exceeds(limit)
        last = self.to_images[m - 1]
        change = ((last @ self.gram) @ last).tolist()
        step, r, z = (self.gram[:, i, i].tolist() for i in (m - 1, -2, -1))
        if all(c > 0 and s * q < (limit / 30) ** 2 * c * w for s, c, q, w in zip(step, change, r, z, strict=True)):
            return [False] * len(step)
        return super().exceeds(limit)

    def values(self) -> list[float]:
        gram, to_images = self.gram, self.to_images
        m = to_images.shape[0]
        steps = gram[:, :m, :m]
        images = to_images @ gram @ to_images.mT
        noise = _NOISE * images.diagonal(dim1=1, dim2=2) + torch.finfo(gram.dtype).tiny
        inverse = torch.linalg.inv_ex(images + torch.diag_embed(noise)).inverse

        along = to_images @ gram[:, :, -2:-1]
        combination = inverse @ along  # the extrapolated error, in terms of the steps
        inside = (combination.mT @ steps @ combination).flatten()
        rest = gram[:, -2, -2] - (combination.mT @ along).flatten()
        gain = (inverse * steps).sum(dim=(1, 2))
        shifted = gram[:, -1, -1] + 2 * (gram[:, -1:, :m] @ combination).flatten() + inside
        rows = torch.stack([inside, rest, gain, shifted, gram[:, -2, -2], gram[:, -1, -1]], dim=1).tolist()
        return [_relative(row, self.rounding) for row in rows]


_NOISE = 1e-9
"""Directions of the span weaker than this (in the square, relative to the steps) are noise."""


def _gram(vectors: list[Tensor]) -> Tensor:
    """The inner products of vectors (problems, size) with each other, in float64, without a float64 copy of all of them."""
    problems, size = vectors[0].shape
    width = max(1, max(BLOCK, problems * size) // (problems * len(vectors)))
    gram = torch.zeros(problems, len(vectors), len(vectors), dtype=torch.float64, device=vectors[0].device)
    for i in range(0, size, width):
        block = torch.stack([v[:, i : i + width] for v in vectors], dim=1).double()
        gram.baddbmm_(block, block.mT)
    return gram


def _relative(row: list[float], rounding: float) -> float:
    inside, rest, gain, shifted, r, z = row
    if r <= rounding**2 * z:
        return 10 * max(math.sqrt(r / z), rounding) if r else 0.0  # the changes of such residuals say nothing
    beyond = max(rest, 0.0) * (gain if gain > 0 else 1.0)
    size = shifted + beyond
    if not math.isfinite(size):
        return math.inf
    return math.sqrt(max(inside + beyond, 0.0) / size) if size > 0 else 0.0
