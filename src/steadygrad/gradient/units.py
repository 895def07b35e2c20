"""States of several leaves in units of their own size: inner products would else count only the leaf with the large numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from steadygrad.jacobian import Jacobian
from steadygrad.state import Layout

APART = 10.0
"""Leaves whose elements differ in size by less than this factor are left as they are."""


def units_of(layout: Layout, h: Tensor) -> Tensor | None:
    """The size of an element of each leaf, (problems, size); None where all are much alike.

    A leaf that is zero has no size, and gets the geometric mean of the others.
    """
    if len(layout.sizes) == 1:
        return None
    leaves = h.double().split(list(layout.sizes), dim=1)
    sizes = torch.stack([leaf.square().mean(dim=1).sqrt() for leaf in leaves], dim=1)
    known = (sizes > 0) & sizes.isfinite()
    logs = torch.where(known, sizes, torch.ones_like(sizes)).log()
    mean = logs.sum(dim=1, keepdim=True) / known.sum(dim=1, keepdim=True).clamp(min=1)
    logs = torch.where(known, logs, mean) - mean
    if bool((logs.amax(dim=1) - logs.amin(dim=1)).exp().amax() < APART):
        return None
    counts = torch.tensor(layout.sizes, device=h.device)
    return logs.exp().to(h.dtype).repeat_interleave(counts, dim=1)


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
