"""F on flat states: checks what it returns, keeps its random draws fixed, and knows whether anything needs a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from steadygrad.solution import SteadyStateError
from steadygrad.state import Layout


class Update:
    """The update of one solve: `update(flat)` is F on the flat form of the state.

    Random draws inside F (dropout) are the same in every call of one solve, as a steady state needs; the next solve draws
    anew. With `probe`, the first call runs with gradients enabled, to learn whether F depends on anything that needs one.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], layout: Layout, probe: bool) -> None:
        self.function = function
        self.args = args
        self.layout = layout
        self.requires_grad = False
        self._probe = probe
        self._generator: Generator | None = None

    def __call__(self, flat: Tensor) -> Tensor:
        if self._generator is None:
            return self._first_call(flat)
        self._generator.rewind()
        return self.layout.flatten(self.leaves(self.layout.split(flat)))

    def leaves(self, leaves: list[Tensor]) -> list[Tensor]:
        """F on the tensors of a state, in the nesting that the user knows."""
        versions = [None if leaf.is_inference() else leaf._version for leaf in leaves]
        result = self.function(self.layout.nest(leaves), *self.args)
        for leaf, version in zip(leaves, versions, strict=True):
            if version is not None and leaf._version != version:
                raise SteadyStateError(_IN_PLACE)
        return self.layout.check(result)

    def linearise(self, leaves: list[Tensor]) -> list[Tensor]:
        """F at a state that needs gradients, with the graph that products with J run through."""
        if self._generator is not None:
            self._generator.rewind()
        with torch.enable_grad():
            return self.leaves(leaves)

    def _first_call(self, flat: Tensor) -> Tensor:
        self._generator = Generator(flat.device)
        before = flat.clone()
        with torch.set_grad_enabled(self._probe or torch.is_grad_enabled()):
            result = self.layout.flatten(self.leaves(self.layout.split(flat)))
        if flat.is_inference() and not torch.equal(before, flat):
            raise SteadyStateError(_IN_PLACE)
        self._generator.notice()
        self.requires_grad = result.requires_grad
        return result if torch.is_grad_enabled() else result.detach()


_IN_PLACE = (
    "update modified the state in place; F must return a new state and leave the one it was given as it is. "
    "Replace in-place operations on h (h += ..., h.relu_()) by their out-of-place forms, or start F with h = h.clone()."
)


class Generator:
    """torch's random state at the first call of F, restored before each later one if F turns out to draw from it."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._start = self._states()
        self._random = False

    def _states(self) -> list[Tensor]:
        states = [torch.get_rng_state()]
        if self._cuda is not None:
            states.append(torch.cuda.get_rng_state(self._cuda))
        return states

    def notice(self) -> None:
        """Compare with the state at the start, after the first call."""
        self._random = not all(torch.equal(a, b) for a, b in zip(self._start, self._states(), strict=True))

    def rewind(self) -> None:
        if self._random:
            torch.set_rng_state(self._start[0])
            if self._cuda is not None:
                torch.cuda.set_rng_state(self._start[1], self._cuda)
