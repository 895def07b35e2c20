"""Whether a stationary point of an energy is a minimum: the smallest curvature, by a few Lanczos steps."""

from __future__ import annotations

import torch
from torch import Tensor

from steadygrad.state.rows import dot, norm, ratio
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian

STEPS = 20
"""Lanczos steps: the extreme curvatures show within these unless they lie in a dense cluster."""
NEGATIVE = {torch.float32: 1e-3, torch.float64: 1e-7}
"""A curvature below minus this share of the largest is negative; above, it may be rounding."""
ESCAPE = 1e-2
"""How far a saddle is left, relative to the state: far enough to feel the slope, near enough to stay in the valley."""


def away_from_a_saddle(update: Update, h: Tensor) -> Tensor:
    """A step along the direction of the most negative curvature of each row, downhill if there is a slope; zero at minima.

    The update is h − ∇E(h), so that I − J is the Hessian. Costs some twenty products a call.
    """
    jacobian = Jacobian(update, h)
    value, direction, largest = smallest_curvature(jacobian, h)
    negative = value < -NEGATIVE.get(h.dtype, 1e-3) * largest
    slope = dot(jacobian.gap(), direction)  # minus the gradient, along the direction
    sign = torch.where(slope < 0, -1.0, 1.0).to(h.dtype)
    size = ESCAPE * torch.where(norm(h) > 0, norm(h), torch.ones_like(h[:, :1]))
    return torch.where(negative, sign * size * direction, torch.zeros_like(h))


def smallest_curvature(jacobian: Jacobian, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The smallest eigenvalue of I − J with its vector, and the largest in modulus, row by row, for a symmetric J."""
    draw = torch.randn(h.shape, generator=torch.Generator("cpu").manual_seed(0), dtype=h.dtype, device="cpu").to(h.device)
    v = ratio(draw, norm(draw))
    vectors, diagonal, beside = [v], list[Tensor](), list[Tensor]()
    for _ in range(min(STEPS, h.shape[1])):
        image = vectors[-1] - jacobian.vjp(vectors[-1])
        diagonal.append(dot(vectors[-1], image))
        for _ in range(2):  # full orthogonalisation, twice: ghosts of converged values would hide the others
            for u in vectors:
                image = image - dot(u, image) * u
        length = norm(image)
        beside.append(length)
        vectors.append(ratio(image, length))
    steps = len(diagonal)
    tridiagonal = torch.diag_embed(torch.cat(diagonal, dim=1).double())
    if steps > 1:
        off = torch.cat(beside[:-1], dim=1).double()
        tridiagonal = tridiagonal + torch.diag_embed(off, offset=1) + torch.diag_embed(off, offset=-1)
    finite = tridiagonal.isfinite().all(dim=2, keepdim=True).all(dim=1, keepdim=True)
    values, coefficients = torch.linalg.eigh(torch.where(finite, tridiagonal, torch.zeros_like(tridiagonal)))
    stacked = torch.stack(vectors[:-1], dim=1)
    direction = (coefficients[:, :, 0].to(h.dtype).unsqueeze(1) @ stacked).squeeze(1)
    largest = values.abs().amax(dim=1, keepdim=True)
    return values[:, :1].to(h.dtype), ratio(direction, norm(direction)), largest.to(h.dtype)
