"""What the error of an adjoint does to each gradient: one that is small because large parts cancel is worse than z as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy
import torch
from torch import Tensor

from steadygrad.gradient.look import Look, Seen, signs_like
from steadygrad.iteration.norms import Numbers, leaf_norms
from steadygrad.state.shards import somewhere
from steadygrad.update.jacobian import Jacobian

DOUBT = 0.03
"""Adjoints whose error is below this share of what is trusted (1 %) are not looked at: those to the default tolerance with gains
up to thirty. A gradient that counts is then off by 3 % at the most."""
SURE = 0.3
"""A guess from the residual that finds less than this share of what is trusted is enough."""


def gradient_error(
    jacobian: Jacobian,
    seen: Sequence[Seen],
    errors: Sequence[Numbers],
    trusted: float,
    solve: Callable[[Jacobian, Tensor, bool], Tensor],
) -> float | None:
    """The relative error of the gradient for the error of z, by the worst of what F depends on; None where nobody looks.

    `errors` are those of the rows of each z, relative; `solve` gives the solution of (I − Jᵀ) x = v, roughly. First the error is
    guessed, in the direction of its residual and in a random one, for an evaluation of F and a few products; only where that is
    not little, it is worked out.
    """
    look = Look(jacobian, torch.zeros_like(jacobian.h), seen, leaf_norms([jacobian.h], jacobian.layout.sizes)[0])
    if not look.sees:
        return None
    draw = numpy.random.default_rng(1)

    def along(i: int, residual: Tensor) -> Tensor:
        return residual * _longer(residual, seen[i].z, errors[i])

    def across(i: int, residual: Tensor) -> Tensor:
        return seen[i].z * signs_like(residual, draw) * torch.from_numpy(errors[i]).to(residual).unsqueeze(1)

    guess = max(look.corrected(guessed, SURE * trusted) for guessed in (along, across))
    if not somewhere(guess > SURE * trusted):
        return guess
    return look.corrected(lambda _, residual: solve(jacobian, residual, False), SURE * trusted)


def _longer(residual: Tensor, z: Tensor, errors: Numbers) -> Tensor:
    """How many times longer than the residual an error of that size is, a column; 0 where there is no residual."""
    r, size = leaf_norms([residual, z], (z.shape[1],))
    with numpy.errstate(all="ignore"):
        longer = numpy.nan_to_num(errors[:, None] * size / r, nan=0.0, posinf=0.0)
    return torch.from_numpy(longer).to(z)
