"""States of several leaves in units of their own size: inner products would else count only the leaf with the large numbers."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import reach_of
from steadygrad.iteration.norms import Numbers, leaf_norms
from steadygrad.state import Layout
from steadygrad.state.shards import total
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian
from steadygrad.update.linear_map import Linear, transposed

APART = 10.0
"""Leaves whose elements differ in size by less than this factor are left as they are."""


def sizes_of(update: Update, h: Tensor) -> Numbers | None:
    """How large an element of each leaf is, (problems, leaves); None for a state of one leaf, or of leaves much alike.

    That is the root mean square of the leaf itself or, if more, of what F gives it where the state changes by its own size: a
    leaf that rests at zero (the momentum of an optimiser) is rounding errors, and no measure. 0 where it has no size at all.
    """
    sizes = update.layout.sizes
    if len(sizes) == 1:
        return None
    roots = total(torch.tensor(sizes, dtype=torch.float64, device=h.device)).sqrt().cpu().numpy()
    (own,) = leaf_norms([h], sizes)
    own = own / roots
    if _alike(own):
        return None
    (reach,) = leaf_norms([reach_of(update, h)], sizes)
    found = numpy.fmax(own, numpy.where(numpy.isfinite(reach), reach, 0.0) / roots)
    return None if _alike(found) else found


def _alike(sizes: Numbers) -> bool:
    smallest, largest = sizes.min(axis=1), sizes.max(axis=1)
    return bool(numpy.isfinite(sizes).all() and (largest <= APART * smallest).all())


def units_of(sizes: Numbers, b: Tensor, layout: Layout) -> Tensor:
    """The unit of every number of the state, (problems, size), from the sizes of its leaves.

    A leaf without a size gets the unit in which its part of the cotangent weighs as much as that of the others: neither part
    then hides what the other leaves of the residual.
    """
    (weight,) = leaf_norms([b], layout.sizes)
    with numpy.errstate(all="ignore"):
        known = (sizes > 0) & numpy.isfinite(sizes)
        logs = numpy.log(numpy.where(known, sizes, 1.0))
        counted = known & (weight > 0)
        shares = numpy.where(counted, logs + numpy.log(numpy.where(weight > 0, weight, 1.0)), 0.0)
        typical = shares.sum(axis=1, keepdims=True) / numpy.fmax(counted.sum(axis=1, keepdims=True), 1)
        fitted = numpy.where(weight > 0, typical - numpy.log(numpy.where(weight > 0, weight, 1.0)), 0.0)
        logs = numpy.where(known, logs, numpy.where(counted.any(axis=1, keepdims=True), fitted, 0.0))
        logs -= logs.mean(axis=1, keepdims=True)
    units = torch.from_numpy(numpy.exp(logs)).to(b.device, b.dtype)
    return units.repeat_interleave(torch.tensor(layout.sizes, device=b.device), dim=1)


def solved_in_units(jacobian: Jacobian, sizes: Numbers | None, b: Tensor, transpose: bool) -> tuple[Linear, Tensor | None]:
    """The map to solve (I − Jᵀ) z = b with, or (I − J) z = b, and the units that b and z are multiplied by; None for none.

    `sizes` are those of the leaves, None where they are much alike.
    """
    units = None if sizes is None else units_of(sizes, b, jacobian.layout)
    scaled: Linear = jacobian if units is None else InUnits(jacobian, units)
    if not transpose:
        return scaled, units
    return transposed(scaled), None if units is None else 1 / units


class InUnits:
    """J of h / u instead of h: Jᵀ becomes u Jᵀ (1/u), and (I − Jᵀ) z = b the same equation for u·z and u·b.

    Series and fixed points give what they give without; stops, inner products and certificates count every leaf alike.
    """

    def __init__(self, jacobian: Jacobian, units: Tensor) -> None:
        self._of = jacobian
        self._units = units

    @property
    def products(self) -> int:
        return self._of.products

    @property
    def precision(self) -> torch.dtype:
        return self._of.precision

    def vjp(self, v: Tensor) -> Tensor:
        return self._units * self._of.vjp(v / self._units)

    def jvp(self, v: Tensor) -> Tensor:
        return self._of.jvp(v * self._units) / self._units

    def dense(self) -> Tensor:
        return self._of.dense() * self._units.unsqueeze(1) / self._units.unsqueeze(2)

    def part(self, rows: Tensor) -> InUnits | None:
        part = self._of.part(rows)
        return None if part is None else InUnits(part, self._units[rows])
