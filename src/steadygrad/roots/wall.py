"""An energy for torch's optimisers, with a wall around the part of space where it is finite."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from steadygrad.update import Update

HEIGHT = 1e6
"""How much higher than the last energy the wall is."""
OVERFLOW = 0.25
"""A state beyond this power of the largest number runs away: what is not finite there has overflown, and is no wall."""


class Walled:
    """The closure of an optimiser: the energy, with its gradient left in `state.grad`.

    Outside of the domain of the energy it is higher than before, with the slope of the way back, so that a line search looks
    on this side. torch's own ends with an IndexError where the energy is NaN and its gradient is not, as beyond a logarithm.
    """

    def __init__(self, energy: Callable[..., Tensor], update: Update, state: Tensor, optimiser: torch.optim.Optimizer) -> None:
        self._energy, self._update, self._state, self._optimiser = energy, update, state, optimiser
        self._last: tuple[float, Tensor, Tensor] | None = None
        """Energy, gradient and state of the last call inside."""

    def __call__(self) -> float:
        self._optimiser.zero_grad()
        number, gradient = self._evaluated(self._state)
        if math.isfinite(number) and bool(gradient.isfinite().all()):
            self._last = number, gradient, self._state.detach().clone()
        elif self._last is None or self._runs_away(self._last[2]):
            number, gradient = math.nan, torch.full_like(gradient, math.nan)
        else:
            number, gradient = self._last[0] + HEIGHT * (abs(self._last[0]) or 1.0), -self._last[1]
        self._state.grad = gradient
        return number

    def inside(self, h: Tensor) -> Tensor:
        """h, or the last state inside where the energy is not finite at h."""
        if self._last is None or self._runs_away(self._last[2]):
            return h
        number, _ = self._evaluated(h.requires_grad_())
        return h.detach() if math.isfinite(number) else self._last[2]

    def _evaluated(self, h: Tensor) -> tuple[float, Tensor]:
        layout = self._update.layout
        with torch.enable_grad():
            value = self._energy(layout.nest(layout.split(h)), *self._update.args).sum()
            (gradient,) = torch.autograd.grad(value, h)
        return float(value.detach()), gradient

    def _runs_away(self, h: Tensor) -> bool:
        return float(h.abs().max()) > torch.finfo(h.dtype).max ** OVERFLOW
