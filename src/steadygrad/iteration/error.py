"""How far an iterate is from the solution, from what an iteration has already computed: nothing is evaluated here.

The residual r and the error e of a linear equation obey A e = r, so the error is the residual times a gain that depends on its
direction: one number for all directions, as a condition number is, would be wrong by orders of magnitude. Two points and the
residuals there tell the gain along the line between them; more of them that of the space between them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.judge import Goal
from steadygrad.iteration.norms import Numbers, leaf_norms
from steadygrad.iteration.solver import Iteration

BLOCK = 2**17
"""Numbers copied to float64 at a time: this many, or as many as the state has if that is more."""
NOISE = 1e-9
"""Directions of the span weaker than this (in the square, relative to the steps) are noise."""
FLOOR = 4.0
"""A residual of so many roundings of the iterate is as small as it gets."""


def distances(solver: Iteration, trail: list[Any], residual: Numbers, size: Numbers, goal: Goal) -> Numbers:
    """‖error‖ / ‖iterate‖ for each row, in its worst leaf, from the last two points: about step / (1 − rate).

    `residual` and `size` are the norms (rows, leaves) of the last. A residual at the rounding floor says nothing of the
    distance and raises no alarm; where only one residual is known the distance is unknown, that is infinite.
    """
    rounding = goal.rounding * size
    relative = _over(residual, size)
    at_floor = residual <= FLOOR * rounding
    if len(trail) < 2 or solver.residual(trail[-2]) is None:
        far = numpy.where(at_floor, relative, math.inf)
    else:
        before, after = (solver.residual(state) for state in trail[-2:])
        if before is None or after is None or after.shape[1] == 1:
            far = relative  # a norm that is the distance itself, as Newton's step is
        else:
            with torch.no_grad():
                step = solver.point(trail[-1]) - solver.point(trail[-2])
                moved, changed = leaf_norms([step, after - before], goal.sizes)
            gain = _over(moved, numpy.fmax(changed, rounding))
            far = numpy.where(at_floor, relative, numpy.fmax(gain, 1e-3) * relative)
    worst: Numbers = far.max(axis=1)
    return worst


def _over(a: Numbers, b: Numbers) -> Numbers:
    with numpy.errstate(all="ignore"):
        return numpy.where(a == 0, 0.0, a / b)


def gains(solver: Iteration, trail: list[Any], end: tuple[Tensor, Tensor] | None = None) -> Numbers:
    """‖error‖ / ‖residual‖ for each row at the end of a linear iteration: the solver's own estimate, or one from its trail.

    `end` is the iterate that is kept with its true residual, where that is known.
    """
    own = solver.gain(trail[-1])
    if own is not None:
        return own
    pairs = [(solver.point(state), r) for state in trail if (r := solver.residual(state)) is not None]
    pairs = pairs if end is None else [*pairs, end]
    steps = [after[0] - before[0] for before, after in pairwise(pairs)]
    changes = [before[1] - after[1] for before, after in pairwise(pairs)]
    return extrapolated(steps, changes, pairs[-1][1])


def extrapolated(steps: list[Tensor], changes: list[Tensor], residual: Tensor) -> Numbers:
    """‖e‖ / ‖r‖ from some steps s_j and what they took off the residual, c_j = A s_j, a row a problem.

    The part of r in the span of the changes is inverted exactly (reduced rank extrapolation); the rest is given the largest
    gain met in that span.
    """
    rows, m = residual.shape[0], len(steps)
    if m == 0:
        return numpy.ones(rows)
    gram = _gram([*steps, *changes, residual]).cpu().numpy()
    by_step, by_change = gram[:, :m, :m], gram[:, m : 2 * m, m : 2 * m]
    along, r = gram[:, m : 2 * m, -1:], gram[:, -1, -1]
    diagonal = numpy.einsum("rii->ri", by_change)
    solvable = numpy.isfinite(gram).all(axis=(1, 2)) & (diagonal > 0).any(axis=1)
    noise = numpy.where(diagonal > 0, NOISE * diagonal, 1.0)  # a change of zero: two points are the same
    system = by_change + numpy.eye(m) * noise[:, None, :]
    system[~solvable] = numpy.eye(m)
    with numpy.errstate(all="ignore"):
        inverse = numpy.linalg.inv(system)
        combination = inverse @ along  # the extrapolated error, in terms of the steps
        inside = (combination.mT @ by_step @ combination)[:, 0, 0]
        rest = numpy.fmax(r - (combination.mT @ along)[:, 0, 0], 0.0)
        largest = numpy.fmax((inverse * by_step).sum(axis=(1, 2)), 0.0)
        gain = numpy.sqrt((numpy.fmax(inside, 0.0) + rest * largest) / r)
    return numpy.where(solvable & numpy.isfinite(gain), gain, 1.0)


def _gram(vectors: list[Tensor]) -> Tensor:
    """The inner products of vectors (problems, size) with each other, in float64, without a float64 copy of all of them."""
    problems, size = vectors[0].shape
    width = max(1, max(BLOCK, problems * size) // (problems * len(vectors)))
    gram = torch.zeros(problems, len(vectors), len(vectors), dtype=torch.float64, device=vectors[0].device)
    for i in range(0, size, width):
        block = torch.stack([v[:, i : i + width] for v in vectors], dim=1).double()
        gram.baddbmm_(block, block.mT)
    return gram


def relative_error(gain: float, residual: float, size: float) -> float:
    """‖e‖ / ‖z + e‖ for an error of ‖e‖ = gain·‖r‖, taken to be orthogonal to z."""
    e = gain * residual if residual else 0.0
    whole = math.hypot(e, size)
    return math.inf if math.isnan(whole) else e / whole if whole else 0.0
