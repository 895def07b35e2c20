"""Leaps of the Neumann series: the last terms extrapolated, for states so large that more than a few vectors are too many."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.gain import Gains, distinct, inner_products
from steadygrad.iteration.norms import Numbers
from steadygrad.linear.neumann import Sum

RIDGE = 10.0
"""Roundings, in units of eps, below which a direction of the last terms is noise."""
DEPENDENT = 1e-13
"""What is noise at least: products of terms are summed in float64. Terms of a state of few numbers are dependent, and without it
what is left of them may be exactly zero."""
LEAPT = 0.25
"""A leap must leave less than this of the residual."""


def between(own: Gains, leaps: Numbers) -> tuple[Numbers, None]:
    """The geometric mean of the gains of the last terms and of the leaps, where that is larger."""
    gain = own.values()[0]
    return numpy.fmax(gain, numpy.sqrt(gain * leaps)), None


def leapt(sum: Sum) -> tuple[Sum, Tensor]:
    """The series moved ahead by the combination of its last terms that leaves the smallest residual, row by row.

    z + Σ cⱼ vⱼ has the residual v − Σ cⱼ (vⱼ − Jᵀvⱼ): no product is spent. This is reduced rank extrapolation (Sidi 2017), a
    few steps of GMRES for the price of a small Gram matrix. Rows that would gain too little stay. Also a column, the
    ‖step‖ / ‖what it took off the residual‖ of each row, 0 where none was taken.
    """
    vectors, steps, changes = distinct(list(sum.seen))
    vectors = [vector.reshape(sum.v.shape) for vector in vectors]
    gram = inner_products([*vectors, sum.v], len(sum.v)).cpu().numpy()
    among, along, own = gram[:, :-1, :-1], changes @ gram[:, :-1, -1:], gram[:, -1, -1]
    by_change = changes @ among @ changes.T
    size = numpy.sqrt(by_change.diagonal(axis1=1, axis2=2))[:, :, None]
    size = numpy.where((size > 0) & numpy.isfinite(size), size, numpy.inf)
    least = max(RIDGE * torch.finfo(sum.v.dtype).eps, DEPENDENT)
    noise = numpy.where(numpy.isinf(size), 1.0, least) * numpy.eye(len(steps))
    system = by_change / size / size.mT + noise
    system[~numpy.isfinite(system).all(axis=(1, 2))] = numpy.eye(len(steps))
    try:
        c = (numpy.linalg.solve(system, along / size) / size).mT
    except numpy.linalg.LinAlgError:  # of terms that are parallel, rounding may cancel the ridge to the last digit
        c = (numpy.linalg.pinv(system, hermitian=True) @ (along / size) / size).mT
    taken_off = (c @ by_change @ c.mT)[:, 0, 0]
    ahead = own + taken_off - 2 * (c @ along)[:, 0, 0] < LEAPT**2 * own
    gain = numpy.sqrt(numpy.where(ahead, (c @ steps @ among @ steps.T @ c.mT)[:, 0, 0] / taken_off, 0.0))
    column = torch.from_numpy(gain[:, None]).to(sum.v)
    if not ahead.any():
        return sum, column
    c[~ahead] = 0.0
    forth, back = (torch.from_numpy(c @ matrix).to(sum.v).unbind(2) for matrix in (steps, -changes))
    z, v = (torch.addcmul(x, by[0], vectors[0]) for x, by in ((sum.z, forth), (sum.v, back)))
    for vector, by_z, by_v in zip(vectors[1:], forth[1:], back[1:], strict=True):
        z.addcmul_(by_z, vector)
        v.addcmul_(by_v, vector)
    return Sum(z, v, sum.seen), column
