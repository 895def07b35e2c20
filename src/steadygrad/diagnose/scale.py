"""How large a change of a state is, leaf by leaf, each against its own size; and J in units of the leaves."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from steadygrad.iteration.norms import leaf_norms
from steadygrad.state import Layout
from steadygrad.update.jacobian import Jacobian

Map = Callable[[Tensor], Tensor]

NUDGE = 1e-3
"""Relative change of the state that shows how large a leaf can become: small beside what F is defined on, and far above
rounding (its square in float32)."""
ZERO = 10
"""A leaf below so many times rtol of what it can become is zero as far as a relative tolerance can tell."""

MIXED = 100.0
"""Leaves whose elements differ by more than this factor are of different units; below it they are left as they are."""


class Scale:
    """The size of each leaf of a state, (problems, leaves), and changes relative to it.

    A state may hold positions of 1e5 beside fractions of 0.2, so that one norm over all would hide the fractions. But a
    leaf that rests at zero, as the momentum of SGD does, has no size of its own: its relative change never falls. Such a
    leaf, at most ZERO·rtol of ‖∂F_leaf‖ for a relative change of the state by one, is measured by that, and at most by the
    whole state.
    """

    def __init__(self, layout: Layout, rtol: float, reach: Tensor | None = None) -> None:
        self._layout = layout
        self._zero = ZERO * rtol
        self._reach = reach

    @classmethod
    def at(cls, layout: Layout, h: Tensor, rtol: float, call: Map, generator: torch.Generator) -> Scale:
        """The scale at h; of a nested state by one call of F at h and one nearby."""
        if len(layout.sizes) == 1:
            return cls(layout, rtol)
        scale = cls(layout, rtol)
        change = call(h + NUDGE * scale.direction(h, generator)) - call(h)
        reach = _leaf_norms(layout, change) / NUDGE
        return cls(layout, rtol, torch.where(reach.isfinite(), reach, 0.0))

    def sizes(self, h: Tensor) -> Tensor:
        """The size of each leaf at h; 0 only where the whole problem is 0."""
        own = _leaf_norms(self._layout, h)
        if self._reach is None:
            return own
        whole = total(own)
        reach = torch.minimum(self._reach, whole)
        sizes = torch.where(own <= self._zero * reach, reach, own)
        return torch.where(sizes > 0, sizes, whole)

    def worst(self, change: Tensor, sizes: Tensor) -> list[float]:
        """For each problem the largest relative change of a leaf; a change of what has no size is a change by 1."""
        changes = _leaf_norms(self._layout, change)
        ratios = torch.where(sizes > 0, changes / sizes, (changes != 0).double())
        return ratios.amax(dim=1).tolist()

    def direction(self, h: Tensor, generator: torch.Generator) -> Tensor:
        """A random change of the state by about its own size, leaf by leaf; by about 1 an element where all is zero."""
        return (self.units(h) * torch.randn(h.shape, generator=generator, dtype=torch.float64).to(h.device)).to(h.dtype)

    def units(self, h: Tensor) -> Tensor:
        """The root mean square of an element of each leaf, for every element, (problems, size); 1 where all is zero."""
        counts = torch.tensor(self._layout.sizes, device=h.device)
        sizes = self.sizes(h)
        share = (counts / counts.sum()).sqrt()  # of the whole state, for a leaf that is zero
        sizes = torch.where(_leaf_norms(self._layout, h) > 0, sizes, torch.where(sizes > 0, sizes * share, counts.sqrt()))
        return (sizes / counts.sqrt()).repeat_interleave(counts, dim=1)

    def relative(self, change: Tensor, h: Tensor) -> list[float]:
        """For each problem the largest change of a leaf, relative to that leaf at h."""
        return self.worst(change, self.sizes(h))


class Units:
    """D⁻¹ J D, with D the sizes of the elements: similar to J, so that ρ is the same; `state` and `back` convert."""

    def __init__(self, jacobian: Jacobian, units: Tensor | None) -> None:
        self._of = jacobian
        self._units = units
        self.products = 0

    def vjp(self, v: Tensor) -> Tensor:
        """D Jᵀ D⁻¹ v."""
        self.products += 1
        return self.back(self._of.vjp(self.state(v)))

    def jvp(self, v: Tensor) -> Tensor:
        """D⁻¹ J D v."""
        self.products += 1
        return self.state(self._of.jvp(self.back(v)))

    def dense(self) -> Tensor:
        """D⁻¹ J D as matrices (problems, size, size)."""
        J = self._of.dense()
        return J if self._units is None else J / self._units.unsqueeze(2) * self._units.unsqueeze(1)

    def state(self, v: Tensor) -> Tensor:
        """A state in these units: D⁻¹ v."""
        return v if self._units is None else v / self._units

    def back(self, v: Tensor) -> Tensor:
        """A state in these units as the user has it, or a cotangent of the user's in these units: D v."""
        return v if self._units is None else v * self._units


def in_units(jacobian: Jacobian, units: Tensor) -> Units:
    """J in the given units, (problems, size), where they are mixed; as it is elsewhere."""
    largest = units.amax(dim=1, keepdim=True)
    if bool((units.amin(dim=1, keepdim=True) * MIXED >= largest).all()):
        return Units(jacobian, None)
    return Units(jacobian, (units / largest).to(jacobian.layout.dtype))


def _leaf_norms(layout: Layout, flat: Tensor) -> Tensor:
    """The 2-norm of each leaf of each problem, (problems, leaves), in float64."""
    return torch.from_numpy(leaf_norms([flat], layout.sizes)[0]).to(flat.device)


def total(norms: Tensor) -> Tensor:
    """The norm of each problem from those of its leaves, as a column; no square leaves the range."""
    largest = norms.amax(dim=1, keepdim=True)
    unit = torch.where((largest > 0) & largest.isfinite(), largest, torch.ones_like(largest))
    return unit * torch.linalg.vector_norm(norms / unit, dim=1, keepdim=True)


def ratio(part: float, whole: float) -> float:
    """part / whole; of nothing, nothing is 0 and anything else infinitely much."""
    if whole > 0:
        return part / whole
    return math.inf if part > 0 else 0.0
