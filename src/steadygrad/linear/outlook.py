"""What the series, GMRES and LSQR still need, by what has been seen of them: what `Auto` compares."""

from __future__ import annotations

import math

import numpy

from steadygrad.iteration import Forecast
from steadygrad.iteration.norms import Numbers
from steadygrad.linear.krylov import Krylov
from steadygrad.linear.terms import SeriesTerms

SIGHT = 12
"""Steps of GMRES after which its matrix tells the condition of I − J well enough to compare with LSQR."""
SOON = 100
"""Steps of GMRES that are not worth while a comparison."""
STALLED = 3
"""Cycles of GMRES that it may still need after a whole one before it has stalled."""
BEFORE = 4
"""Steps over which the growth of the condition that a Krylov space has seen is taken."""


def terms_left_by_bend(seen: tuple[tuple[int, float], ...]) -> float:
    """Terms to the tolerance of a series that falls ever faster, as one that has first risen does; infinite of others.

    By the parabola through the logarithms of the residual now, at half of the steps, and at a quarter.
    """
    now = seen[-1]
    half, quarter = (next(look for look in seen if share * look[0] >= now[0]) for share in (2, 4))
    if not quarter[0] < half[0] < now[0]:
        return math.inf
    before, late = ((b[1] - a[1]) / (b[0] - a[0]) for a, b in ((quarter, half), (half, now)))
    bend = 2 * (late - before) / (now[0] - quarter[0])
    if not bend < 0:
        return math.inf
    slope = late + bend * (now[0] - half[0]) / 2
    return (slope + math.sqrt(slope * slope - 2 * bend * now[1])) / -bend


def lsqr_is_faster(space: Krylov | SeriesTerms, size: int, restart: int, forecast: Forecast) -> bool:
    """Compare the products that GMRES still needs with those of LSQR, at the condition that the space has seen.

    `size` is how many numbers a vector has: where there is room for all of them, the space is soon full.
    """
    if space.steps < SIGHT or size <= restart:
        return False
    left, decades = min(steps_left(space.fallen, forecast.decades), forecast.left), forecast.decades
    if left <= SOON:
        return False
    seen = space.hessenberg()[space.unsolved]
    seen = seen[numpy.isfinite(seen).all(axis=(1, 2))]
    if not len(seen):
        return False
    needed = _products_of_lsqr(seen, decades)
    if forecast.step > restart and left > STALLED * restart:
        return left > needed
    if left <= needed:
        return False
    # The condition seen grows with the space, at this rate for each step, of two products, of LSQR too.
    growth = (needed - _products_of_lsqr(seen[:, : 1 - BEFORE, :-BEFORE], decades)) / BEFORE
    return growth < 2 and left > needed / (1 - growth / 2)


def steps_left(fallen: Numbers, decades: float) -> float:
    """Steps that GMRES still needs, at the rate of the later half of those by which residuals have fallen, (problems, steps + 1);
    infinite where one does not fall. `decades` is the logarithm of how much too large they are."""
    steps = fallen.shape[1] - 1
    rate = numpy.log(fallen[:, steps // 2] / fallen[:, -1]).min(initial=math.inf) / max(steps - steps // 2, 1)
    return decades / float(rate) if rate > 0 else math.inf


def _products_of_lsqr(hessenberg: Numbers, decades: float) -> float:
    """What LSQR takes at the condition of such matrices: ‖r‖ falls to 2 ((κ − 1)/(κ + 1))ᵏ in k steps of two products."""
    singular = numpy.linalg.svd(hessenberg, compute_uv=False)
    with numpy.errstate(divide="ignore"):
        return float((singular[:, 0] / singular[:, -1]).max()) * (decades + math.log(2))
