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
    anew. With `probe`, a first call without gradients has them enabled inside, to learn whether anything needs one.
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
        if self.layout.template is None:
            return self._plain(flat)
        return self.layout.flatten(self.leaves(self.layout.split(flat)))

    def _plain(self, flat: Tensor) -> Tensor:
        """`__call__` for a state of one tensor, without the detours: this is the innermost loop."""
        layout = self.layout
        h = flat.view(layout.shapes[0])
        version = None if h.is_inference() else h._version
        image = self.function(h, *self.args)
        if version is not None and h._version != version:
            raise SteadyStateError(_IN_PLACE)
        if not (isinstance(image, Tensor) and image.shape == h.shape and image.dtype is layout.dtype):
            layout.check(image)
        return image.reshape(flat.shape)

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
        before = flat.clone() if flat.is_inference() else None  # inference tensors count no versions
        if self._probe and not torch.is_grad_enabled():
            probes = [leaf.detach().requires_grad_() for leaf in self.layout.split(flat)]
            with torch.enable_grad():
                leaves = self.leaves([leaf.clone() for leaf in probes])  # on a leaf, torch's own error would hide ours
            self.requires_grad = needs_gradient(leaves, besides=probes)
            result = self.layout.flatten([leaf.detach() for leaf in leaves])
        else:
            result = self.layout.flatten(self.leaves(self.layout.split(flat)))
        if before is not None and not torch.allclose(before, flat, rtol=0, atol=0, equal_nan=True):
            raise SteadyStateError(_IN_PLACE)
        self._generator.notice()
        return result


def needs_gradient(outputs: list[Tensor], besides: list[Tensor]) -> bool:
    """Whether the graph of the outputs reaches any leaf besides the given ones."""
    known = {id(leaf) for leaf in besides}
    seen: set[Any] = set()
    ahead = [output.grad_fn for output in outputs if output.grad_fn is not None]
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            return True
        if node.name() == "CheckpointFunctionBackward":
            raise SteadyStateError(REENTRANT)
        ahead.extend(ahead_node for ahead_node, _ in node.next_functions if ahead_node is not None)
    return False


REENTRANT = (
    "F uses torch.utils.checkpoint with use_reentrant=True, which cannot give products with J; "
    "call checkpoint(..., use_reentrant=False) inside F."
)


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
