"""J in units of the leaves of the state, so that ‖J‖ and σ_min(I − J) do not depend on what the user measures in."""

from __future__ import annotations

from torch import Tensor

from steadygrad.update.jacobian import Jacobian

MIXED = 100.0
"""Leaves whose elements differ by more than this factor are of different units; below it they are left as they are."""


class Units:
    """D⁻¹ J D, with D the sizes of the elements: similar to J, so that ρ is the same; `state` and `cotangent` convert."""

    def __init__(self, jacobian: Jacobian, units: Tensor | None) -> None:
        self._of = jacobian
        self._units = units
        self.products = 0

    def vjp(self, v: Tensor) -> Tensor:
        """D Jᵀ D⁻¹ v."""
        self.products += 1
        return self.cotangent(self._of.vjp(self.state(v)))

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
        """A state in these units as the user has it: D v."""
        return v if self._units is None else v * self._units

    def cotangent(self, v: Tensor) -> Tensor:
        """A cotangent in these units: D v."""
        return self.back(v)


def in_units(jacobian: Jacobian, units: Tensor) -> Units:
    """J in the given units, (problems, size), where they are mixed; as it is elsewhere."""
    largest = units.amax(dim=1, keepdim=True)
    if bool((units.amin(dim=1, keepdim=True) * MIXED >= largest).all()):
        return Units(jacobian, None)
    return Units(jacobian, (units / largest).to(jacobian.layout.dtype))
