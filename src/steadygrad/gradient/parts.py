"""What the error of an adjoint does to each gradient: one that is small because large parts cancel is worse than z as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy
import torch
from torch import Tensor

from steadygrad.gradient.look import Here, Look, Seen, signs_like
from steadygrad.iteration.norms import Numbers, leaf_norms
from steadygrad.state.shards import somewhere
from steadygrad.update.jacobian import Jacobian

DOUBT = 0.03
"""Adjoints whose error is below this share of what is trusted (1 %) are not looked at: those to the default tolerance with gains
up to thirty. A gradient that counts is then off by 3 % at the most."""
SURE = 0.3
"""A guess from the residual that finds less than this share of what is trusted is enough."""
LEAST = 1e-12
"""A leaf with a smaller share of z than this holds nothing but rounding, in any dtype, and is not looked at."""


def gradient_error(
    here: Here,
    seen: Sequence[Seen],
    errors: Sequence[Numbers],
    trusted: float,
    solve: Callable[[Jacobian, Tensor, bool], Tensor],
) -> float | None:
    """The relative error of the gradient for the error of z, by the worst of what F depends on; None where nobody looks.

    `errors` are those of the rows and leaves of each z, relative; `solve` gives the solution of (I − Jᵀ) x = v, roughly. First
    the error is guessed, in the direction of its residual and in a random one, for an evaluation of F and a few products; only
    where that is not little, it is worked out.
    """
    jacobian = here.jacobian
    here.compare()
    look = Look(here, jacobian, seen, leaf_norms([jacobian.h], jacobian.layout.sizes)[0])
    if not look.sees:
        return None
    draw, sizes = numpy.random.default_rng(1), jacobian.layout.sizes

    def by_column(of_leaves: Numbers) -> Tensor:
        return torch.from_numpy(of_leaves.repeat(sizes, axis=1)).to(jacobian.h)

    def along(i: int, residual: Tensor) -> Tensor:
        return residual * by_column(_longer(residual, seen[i].z, errors[i], sizes))

    def across(i: int, residual: Tensor) -> Tensor:
        return seen[i].z * signs_like(residual, draw) * by_column(errors[i])

    guess = max(look.corrected(guessed, SURE * trusted) for guessed in (along, across))
    if not somewhere(guess > SURE * trusted):
        return guess
    return look.corrected(lambda _, residual: solve(jacobian, residual, False), SURE * trusted)


def errors_of_leaves(z: Tensor, errors: Numbers, sizes: Sequence[int], residual: Callable[[], Tensor]) -> Numbers:
    """The relative error of every row and leaf of z, were that of its row spread over its leaves alike.

    A leaf that is a small part of z, as a variance beside its mean, may be wrong altogether in a z that is precise as a whole.
    One of zeros is wrong altogether unless its `residual` is zero too: a solver may have ended before it came there. z is in the
    units in which the errors were measured.
    """
    if len(sizes) == 1:
        return errors[:, None]
    (norms,) = leaf_norms([z], sizes)
    with numpy.errstate(all="ignore"):
        shares = norms / numpy.linalg.norm(norms, axis=1, keepdims=True)
        found: Numbers = numpy.where(shares > LEAST, errors[:, None] / shares, 0.0)
    unreached = (norms == 0) & (errors[:, None] > 0)
    if somewhere(bool(unreached.any())):
        found[unreached & (leaf_norms([residual()], sizes)[0] > 0)] = 1.0
    return found


def _longer(residual: Tensor, z: Tensor, errors: Numbers, sizes: Sequence[int]) -> Numbers:
    """How many times longer than the residual an error of that size is, by row and leaf; 0 where there is no residual.

    For a leaf of zeros that is not known: once.
    """
    r, size = leaf_norms([residual, z], sizes)
    with numpy.errstate(all="ignore"):
        longer: Numbers = numpy.where(size > 0, numpy.nan_to_num(errors * size / r, nan=0.0, posinf=0.0), errors)
    return longer
