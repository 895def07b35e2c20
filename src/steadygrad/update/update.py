"""F on flat states: checks what it returns, and keeps its conditions fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from steadygrad.failure import SteadyStateError
from steadygrad.state import Layout
from steadygrad.state.shards import everywhere, greatest, needed_by_all
from steadygrad.state.tree import map_tensors, tensors_in
from steadygrad.update.attention import differentiable_attention
from steadygrad.update.autocast import Autocast
from steadygrad.update.randomness import FrozenRandomness

Result = TypeVar("Result")


class Update:
    """The update of one solve: `update(flat)` is F on the flat form of the state.

    Random draws inside F (dropout) are the same in every call of one solve, as a steady state needs; the next solve draws
    anew. F runs under the autocast of the place where the solve began.
    """

    at_once = 1
    """Several steps can be taken at once, of any number."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], layout: Layout) -> None:
        self.function = function
        self.args = args
        self.layout = layout
        self._plain = layout.template is None and layout.viewable
        """Whether a state is one tensor, of which the flat form is a view."""
        self._coupled = [False]  # shared with the parts of it
        self.called = False
        """Whether F has been called, so that what it returns is known to be a state."""
        self._whole: int | None = None
        """For an update of some of the problems: how many there are in all."""
        self.program: Any = None
        """Where its graphs of several steps or products are kept, once that has been looked up."""
        self.captured: Any = None
        """F as such graphs call it, with what it closes over."""
        self._randomness = FrozenRandomness(layout.device)
        self._autocast = Autocast.now(layout.device)
        if args:
            check_args(args, layout)

    @property
    def divisible(self) -> bool:
        """Whether F can be called on some of the problems: its arguments, if any, say what belongs to each."""
        return len(self.layout.args_batch) == 1 and bool(tensors_in(self.args)) and not self._randomness.draws

    @property
    def draws(self) -> bool:
        """Whether F was seen to draw random numbers."""
        return self._randomness.draws

    def proven(self) -> None:
        """Take note that F was traced: it returns a state, and draws nothing."""
        self.called = True
        self._randomness.none_in_it()

    def under_its_autocast(self) -> AbstractContextManager[Any]:
        """A context with the autocast of the place where the solve began."""
        return nullcontext() if self._autocast.is_on else self._autocast.again()

    @property
    def precision(self) -> torch.dtype:
        """The dtype in which F computes: that of the state, or under autocast autocast's. Tolerances go by it."""
        return self._autocast.dtype if self._autocast.enabled else self.layout.dtype

    def part(self, rows: Tensor, value: Tensor) -> Update | None:
        """The same update for some of the problems, where F allows it and does not couple them.

        `value` are the present states: at them F is evaluated with and without the other problems, and compared.
        """
        if not self.divisible:
            return None
        part = self.of_rows(rows)
        if agree(part(value[rows]), self(value)[rows], self.precision):
            return part
        self.couples()
        return None

    @property
    def coupled(self) -> bool:
        """Whether F was seen to give a problem another image when others were left out."""
        return self._coupled[0]

    def couples(self) -> None:
        """Take note that F gives a problem another image when others are left out."""
        self._coupled[0] = True

    def of_rows(self, rows: list[int] | Tensor) -> Update:
        """The same update for some of the problems."""
        index = torch.as_tensor(rows, device=self.layout.device)
        part = Update(self.function, map_tensors(lambda arg: arg[index], self.args), self.layout.of_rows(len(rows)))
        part._coupled = self._coupled
        part.called = self.called
        part._whole = self._whole or self.layout.problems
        part._randomness = self._randomness
        part._autocast = self._autocast
        return part

    def __call__(self, flat: Tensor) -> Tensor:
        """F on the flat form of a state, with a graph if gradients are enabled."""
        flat = needed_by_all(flat)
        try:
            if self.called and self._randomness.idle and self._autocast.is_on:
                return self._image(flat)
            return self.alike(partial(self._image, flat))
        except Exception as error:
            self._explain(error)
            raise

    def native(self, flat: Tensor) -> Tensor:
        """A single problem of one tensor in the shape that F knows, in which F takes and returns it; else what was given."""
        if not self._plain or flat.shape[0] > 1 or flat.is_inference():
            return flat
        return flat.view(self.layout.dims)

    def advance(self, flat: Tensor, steps: int, damping: float = 0.0) -> list[Tensor]:
        """`steps` times h ← (1 − d)·F(h) + d·h: the last states, newest first, three of them if there are so many.

        The innermost loop: for a state of one tensor it runs in the shape that F knows, without detours.
        """
        flat = needed_by_all(flat)
        newest = [flat]
        while steps > 0 and not self._direct(flat):
            newest = [damped(self(newest[0]), newest[0], damping), *newest[:2]]
            steps -= 1
        if steps:
            known = flat.shape == self.layout.shapes[0]
            newest = newest if known else [state.view(self.layout.dims) for state in newest]
            newest = self._native(newest, steps, damping)
            newest = newest if known else [state.reshape_as(flat) for state in newest]
        return newest

    def _direct(self, flat: Tensor) -> bool:
        """Whether F can be called on the tensor that a flat state is, without detours."""
        return self._plain and self.called and self._randomness.idle and self._autocast.is_on and not flat.is_inference()

    def _native(self, newest: list[Tensor], steps: int = 1, damping: float = 0.0) -> list[Tensor]:
        """What `advance` does, from the last states on, in the shape that F knows, with the checks that every call needs.

        The list is changed in place, so that nobody holds on to what is dropped. Of the first call of all, what F returns is
        checked in full.
        """
        function, args, h = self.function, self.args, newest[0]
        shape, dtype = h.shape, h.dtype
        try:
            for left in range(steps, 0, -1):
                version = h._version
                image = function(h, *args)
                if h._version != version:
                    raise SteadyStateError(_IN_PLACE)
                alike = type(image) is Tensor and image.shape == shape and image.dtype is dtype and image.layout is torch.strided
                if not (alike and self.called):
                    image = self.layout.check(image)[0]
                h = image = damped(image, h, damping)
                newest[:] = [h, *newest[:2]] if left < 3 else [h]  # what is let go at once is used again, from the cache
        except Exception as error:
            self._explain(error)
            raise
        return newest

    def linearise(self, leaves: list[Tensor], twice: bool = True) -> list[Tensor]:
        """F at a state that needs gradients, with the graph that products with J run through.

        With `twice`, attention in F can be differentiated twice, as Jv and second derivatives need it; without, its fused
        kernels stay, which are faster and save memory.
        """
        try:
            with torch.enable_grad():
                leaves = list(map(needed_by_all, leaves))
                if not twice:
                    return self.alike(partial(self.leaves, leaves))
                with differentiable_attention():
                    return self.alike(partial(self.leaves, leaves))
        except Exception as error:
            self._explain(error)
            raise

    def leaves(self, leaves: list[Tensor]) -> list[Tensor]:
        """F on the tensors of a state, as it is: with draws of its own, under whatever autocast holds at present."""
        if self._plain and not leaves[0].is_inference():
            return self._native(leaves[:1])[:1]
        versions = [None if leaf.is_inference() else leaf._version for leaf in leaves]
        result = self.function(self.layout.nest(leaves), *self.args)
        for leaf, version in zip(leaves, versions, strict=True):
            if version is not None and leaf._version != version:
                raise SteadyStateError(_IN_PLACE)
        return self.layout.check(result)

    def alike(self, call: Callable[[], Result]) -> Result:
        """`call()` under what all calls of F in one solve share: autocast, random draws and, if these need it, attention."""
        # On a GPU fused and plain attention draw different dropout from the same random state.
        dropout_differs = self._randomness.draws and self.layout.device.type == "cuda"
        if self._autocast.is_on and not dropout_differs:
            return self._randomness.call(call)
        with self._autocast.again(), differentiable_attention() if dropout_differs else nullcontext():
            return self._randomness.call(call)

    def _image(self, flat: Tensor) -> Tensor:
        """F(flat), for a state of one tensor without detours."""
        layout = self.layout
        if self._plain and not flat.is_inference():
            known = flat.shape == layout.shapes[0]
            image = self._native([flat])[0] if known else self._native([flat.view(layout.dims)])[0].reshape_as(flat)
        else:
            # Inference tensors count no versions: at the first call their values are compared.
            before = flat.clone() if flat.is_inference() and not self.called else None
            image = layout.flatten(self.leaves(layout.split(flat)))
            if before is not None and not torch.allclose(before, flat, rtol=0, atol=0, equal_nan=True):
                raise SteadyStateError(_IN_PLACE)
        self.called = True
        return image

    def _explain(self, error: Exception) -> None:
        """Say what an error means that F raises on a part of the problems only."""
        if self._whole is not None and not isinstance(error, SteadyStateError):
            raise SteadyStateError(
                _IN_PART.format(self.layout.problems, self._whole, f"{type(error).__name__}: {error}")
            ) from error


def damped(image: Tensor, h: Tensor, damping: float) -> Tensor:
    """(1 − d)·F(h) + d·h."""
    return torch.lerp(image, h, damping) if damping else image


AGREEMENT = 1e3
"""Roundings by which F on some of the problems may differ from F on all: other sums in a matrix product."""


def agree(part: Tensor, whole: Tensor, precision: torch.dtype) -> bool:
    """Whether F gave the same rows twice, up to rounding in that precision and to what is not finite."""
    with torch.no_grad():
        size = greatest(whole.abs().amax(dim=1, keepdim=True))
        close = (part - whole).abs() <= AGREEMENT * torch.finfo(precision).eps * size
        return everywhere(bool((close | ~(whole.isfinite() & part.isfinite())).all()))


def check_args(args: tuple[Any, ...], layout: Layout) -> None:
    """Refuse arguments that do not begin with the dimensions of the problems."""
    dims = len(layout.args_batch)
    for tensor in tensors_in(args) if dims else []:
        if tensor.shape[:dims] != layout.batch:
            raise ValueError(
                f"with batch_dims={dims} every tensor among the arguments belongs to the problems and must begin with "
                f"{tuple(layout.batch)}; got shape {tuple(tensor.shape)}. Close over what all problems share."
            )


def needs_gradient(outputs: list[Tensor], besides: list[Tensor]) -> bool:
    """Whether the outputs are, or their graph reaches, any leaf besides the given ones."""
    known = {id(leaf) for leaf in besides}
    for output in outputs:
        if output.is_leaf and output.requires_grad and id(output) not in known:
            return True
    for node in nodes_behind([output.grad_fn for output in outputs]):
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            if id(leaf) not in known:
                return True
        elif node.name() == "CheckpointFunctionBackward" and _reaches(node, known):
            raise SteadyStateError(REENTRANT)
    return False


def nodes_behind(start: Iterable[Any]) -> Iterator[Any]:
    """The nodes of a graph, from its outputs on, each once."""
    seen: set[Any] = set()
    ahead = [node for node in start if node is not None]
    while ahead:
        node = ahead.pop()
        if node not in seen:
            seen.add(node)
            yield node
            for behind, _ in node.next_functions:
                if behind is not None:
                    ahead.append(behind)


def _reaches(start: Any, leaves: set[int]) -> bool:
    return any(id(getattr(node, "variable", None)) in leaves for node in nodes_behind([start]))


REENTRANT = (
    "F uses torch.utils.checkpoint with use_reentrant=True, which cannot give products with J; "
    "call checkpoint(..., use_reentrant=False) inside F."
)


_IN_PLACE = (
    "update modified the state in place; F must return a new state and leave the one it was given as it is. "
    "Replace in-place operations on h (h += ..., h.relu_()) by their out-of-place forms, or start F with h = h.clone()."
)

_IN_PART = (
    "F worked on all problems of the batch and failed on {} of {}, when the others had ended ({}). With batch_dims and args, F "
    "is called on the problems that are left: whatever belongs to a problem must be a tensor among the args (also in tuples, "
    "lists and dicts), which are indexed with the state. A tensor with a row a problem that F closes over is not: pass it as "
    "steady_state(update, h0, x, that), or give no args at all."
)
