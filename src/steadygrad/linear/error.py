"""How far z is from the solution, from what a solve has already computed: no product is spent here.

The residual r = b − (I−Jᵀ)z and the error e = z* − z obey (I−Jᵀ)e = r, so the error is the residual times a gain that
depends on its direction: one number for all directions, as a condition number is, would be wrong by orders of magnitude.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def error_from_gain(gain: Tensor, r: Tensor, z: Tensor) -> list[float]:
    """‖e‖ / ‖z + e‖ for a solver that knows its gain ‖e‖/‖r‖, taking e orthogonal to z."""
    size = torch.linalg.vector_norm(r, dim=1)
    e = torch.where(size > 0, gain[:, 0] * size, size)
    return _relative(e, torch.hypot(torch.linalg.vector_norm(z, dim=1), e))


def error_from_trail(residuals: list[Tensor], z: Tensor) -> list[float]:
    """‖e‖ / ‖z + e‖ from the last residuals r_{k−m}, …, r_k of a stationary iteration z_{j+1} = z_j + r_j.

    Every step gives a pair (I−Jᵀ) r_j = r_j − r_{j+1}. The part of r_k in the span of the right sides is inverted exactly
    (reduced rank extrapolation); the rest is given the largest gain met in that span. Valid also for a damped iteration,
    whose steps are proportional to r_j. Memory: the residuals and their differences.
    """
    r = residuals[-1]
    steps = torch.stack(residuals[:-1], dim=1)
    images = torch.stack(residuals[1:], dim=1).neg_().add_(steps)
    length = torch.linalg.vector_norm(images, dim=2, keepdim=True)
    length = torch.where(length > 0, length, torch.ones_like(length))
    steps.div_(length)
    images.div_(length)

    gram, step_gram = (images @ images.mT).double(), (steps @ steps.mT).double()
    finite = (gram + step_gram).isfinite().all(dim=2).all(dim=1)
    gram, step_gram = (torch.where(finite[:, None, None], g, torch.zeros_like(g)) for g in (gram, step_gram))
    values, vectors = torch.linalg.eigh(gram)
    clear = values > _CUT * values[:, -1:].clamp_min(torch.finfo(torch.float64).tiny)
    inverse_root = vectors * torch.where(clear, values, torch.ones_like(values)).rsqrt().mul(clear).unsqueeze(1)

    against = inverse_root.mT @ (images @ r.unsqueeze(2)).double()
    coefficients = (inverse_root @ against).to(r.dtype)
    e = (coefficients.mT @ steps).squeeze(1)
    rest = ((r * r).sum(1).double() - against.square().sum(1).squeeze(1)).clamp_min(0.0)
    gains = torch.linalg.eigvalsh(inverse_root.mT @ step_gram @ inverse_root)[:, -1]
    beyond = rest * torch.where(gains > 0, gains, torch.ones_like(gains))
    relative = _relative((e.square().sum(1) + beyond).sqrt(), ((z + e).square().sum(1) + beyond).sqrt())
    return [value if ok else math.inf for value, ok in zip(relative, finite.tolist(), strict=True)]


_CUT = 1e-8
"""Directions of the span weaker than this (in the square) are noise."""


def _relative(error: Tensor, size: Tensor) -> list[float]:
    ratio = error / torch.where(size > 0, size, torch.ones_like(size))
    return ratio.tolist()
