"""Whether training has come to rest, from how far it went lately."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadygrad.hyper.problem import Inner
from steadygrad.state import State, leaves_of
from steadygrad.state.tree import same_data

WINDOW = 10
"""Training is looked at in this many stretches of equal length, of which the last two are compared."""
LEFT = 1e-3
"""The part of the state that may be left to go. With a hundredth, one of twelve small networks that were called at rest had a
hypergradient 10 % off."""
FORGOTTEN = 0.01
"""What may be left of a disturbance at the start when training ends. The derivative of the state converges at the rate of the
state, wherever it starts: a training whose slowest visible part has not died down has not got its derivative either."""
FLOOR = 10.0
"""Moves below so many units in the last place are rounding."""


@dataclass(frozen=True)
class Rest:
    """How far from rest training is: relative to the state, the distance `left`, and the part of its `start` that is left."""

    left: float
    start: float

    @property
    def state(self) -> bool:
        """Whether the state has arrived."""
        return self.left <= LEFT

    @property
    def derivative(self) -> bool:
        """Whether the state has arrived, and its derivative with it."""
        return self.state and self.start <= FORGOTTEN


class Travel:
    """Sees the states of a training, and says how far from rest it is after `steps` of them.

    With d₁ and d₂ the lengths of the last two stretches of w steps each, the rate over a stretch is r = d₂/d₁ and the distance
    left d₂ r/(1 − r), the sum of a geometric series. Stretches rather than steps, since with momentum single steps go to and
    fro. Steps on different batches have no steady state in common: such a training is never at rest. Three states are kept.
    """

    def __init__(self, inner: Inner, steps: int) -> None:
        self._inner = inner
        stretch = max(1, steps // WINDOW)
        self._marks = (steps - 2 * stretch, steps - stretch)
        self._stretches = steps / stretch
        self._seen: list[Tensor] = []
        self._batch: Any = None
        self._shared = steps >= 2

    def see(self, t: int, state: State, batch: Any) -> None:
        """The state after t steps, with the batch of the step that follows."""
        if not self._shared:
            return
        self._shared = t == 0 or same_data(self._batch, batch)
        self._batch = batch
        if t in self._marks:
            self._seen.append(self._position(state))

    def _position(self, state: State) -> Tensor:
        """What has to come to rest: of the optimisers here the parameters, since Adam's squares take thousands of steps more."""
        leaves = leaves_of(state["parameters"]) if self._inner.trainer is not None else self._inner.split.part(state)[0]
        return torch.cat([leaf.detach().reshape(-1).to(torch.float64) for leaf in leaves])

    def rest(self, state: State) -> Rest:
        """How far from rest the last of the states is; infinitely far where that cannot be known."""
        if not self._shared or len(self._seen) < len(self._marks):
            return Rest(math.inf, math.inf)
        first, second, third = *self._seen, self._position(state)
        size = float(third.norm()) or 1.0
        before, lately = float((second - first).norm()), float((third - second).norm())
        if lately <= FLOOR * torch.finfo(self._inner.first.dtype).eps * size:
            return Rest(lately / size, 0.0)
        if not lately < before:
            return Rest(math.inf, math.inf)
        rate = lately / before
        return Rest(lately * rate / (1 - rate) / size, rate**self._stretches)
