"""The transforms of torch.func around a call (grad, jvp, vmap), one level each, and F without them: on plain tensors.

A solver decides by numbers when to stop, and tensors inside a transform have none to show. So a solve inside torch.func runs
below all transforms, on plain tensors: each vmap becomes leading dimensions of the state, whose entries are problems of their
own, and F is called with the levels put back for as long as it runs, since the tensors that it closes over belong to them.

torch has no public interface for this. What the library uses of `torch._C._functorch` it gets from here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import coerce_cinterpreter
from torch.autograd import forward_ad
from torch.autograd.forward_ad import _set_fwd_grad_enabled

from steadygrad.failure import SteadyStateError
from steadygrad.state import State
from steadygrad.state.tree import fill, leaves_of, template_of

functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
VMAP, GRAD, JVP = functorch.TransformType.Vmap, functorch.TransformType.Grad, functorch.TransformType.Jvp


def inside_transform() -> bool:
    """Whether this runs inside a transform of torch.func, or in forward mode."""
    return functorch.peek_interpreter_stack() is not None or (forward_ad._current_level >= 0 and _in_forward_mode())


def _in_forward_mode() -> bool:
    return forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()


class Level(NamedTuple):
    """One transform: its kind and number, counted from 1 at the outermost; for vmap the size and how F may draw."""

    kind: Any
    number: int
    size: int = 0
    randomness: str = ""

    @classmethod
    def of(cls, interpreter: Any) -> Level:
        found: Any = coerce_cinterpreter(interpreter)
        if found.key() == VMAP:
            return cls(VMAP, found.level(), found.batch_size(), found.randomness())
        if found.key() not in (GRAD, JVP):
            raise SteadyStateError("a steady state cannot be taken inside torch.func.functionalize; take it outside.")
        return cls(found.key(), found.level())

    def push(self) -> None:
        """Put a level of this kind and number on torch's stack; tensors of the level that it stands for belong to it too."""
        if self.kind == VMAP:
            number = functorch._vmap_increment_nesting(self.size, self.randomness)
        elif self.kind == GRAD:
            number = functorch._grad_increment_nesting()
        else:
            number = functorch._jvp_increment_nesting()
        if number != self.number:
            self.pop()
            raise SteadyStateError(_ESCAPED)

    def pop(self) -> None:
        """Take the level off torch's stack."""
        if self.kind == VMAP:
            functorch._vmap_decrement_nesting()
        elif self.kind == GRAD:
            functorch._grad_decrement_nesting()
        else:
            functorch._jvp_decrement_nesting()


@dataclass(frozen=True)
class Levels:
    """The transforms around a call, outermost first."""

    all: tuple[Level, ...]
    own: tuple[Level, ...] = field(default=())
    """The vmaps over whose entries the problem differs: leading dimensions of the plain state, outermost first."""

    @classmethod
    def now(cls) -> Levels | None:
        """The levels around this place; None where there is none and no forward mode either."""
        if not inside_transform():
            return None
        return cls(tuple(Level.of(found) for found in functorch.get_interpreter_stack() or ()))

    @contextmanager
    def cleared(self) -> Generator[None]:
        """A context below all levels, and without forward mode: for plain tensors. May be nested."""
        with ExitStack() as undo:
            while functorch.peek_interpreter_stack() is not None:
                undo.callback(functorch.push_dynamic_layer_stack, functorch.pop_dynamic_layer_stack())
            undo.enter_context(_set_fwd_grad_enabled(False))
            yield

    def again(self, tensors: Sequence[Tensor], call: Callable[[list[Tensor]], list[Tensor]]) -> tuple[list[Tensor], Levels]:
        """`call` of plain tensors with all levels put back: its results as plain tensors, and the vmaps that these differ over.

        Runs in a cleared context. The levels are new ones with the old numbers, so that grad mode is what it is here: with
        gradients enabled the plain tensors' own graph is recorded, else nothing is at any level.
        """
        pushed: list[Level] = []
        cached = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)  # a weight that is cast in here belongs to a level that ends with the call
        try:
            for level in self.all:
                level.push()
                pushed.append(level)
            found = call(self.up(tensors))
            seen: list[Level] = []
            while pushed:
                level = pushed[-1]
                dims = [_dim(leaf, level) for leaf in found]
                found = [_lower(leaf, level) for leaf in found]
                pushed.pop().pop()  # what is done to them from here on is done below this level
                if level in self.own or any(dim is not None for dim in dims):
                    seen.append(level)
                    found = [_front(leaf, dim, level.size) for leaf, dim in zip(found, dims, strict=True)]
            return found, replace(self, own=tuple(reversed(seen)))
        finally:
            torch.set_autocast_cache_enabled(cached)
            while pushed:
                pushed.pop().pop()

    def up(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Plain tensors, whose leading dimensions are those of `own`, as the function inside the transforms sees them."""
        found = list(tensors)
        for level in self.own:
            found = [functorch._add_batch_dim(leaf, 0, level.number) for leaf in found]
        return found

    def seen(self, make: Callable[[], Tensor]) -> Tensor:
        """A plain tensor led by the dimensions of `own` as it is seen here: inside these transforms, or outside, as it is."""
        with self.cleared():
            made = make()
        now = Levels.now()
        inside = now is not None and now.all[: len(self.all)] == self.all
        return self.up([made])[0] if inside else made

    def plain(self, state: State) -> State:
        """A state inside the transforms as plain tensors without a graph, led by the dimensions of `own`."""
        with self.cleared(), torch.no_grad():
            leaves, _ = self.again([], lambda _: leaves_of(state))
            return fill(template_of(state), [leaf.detach() for leaf in leaves])

    def around(self, function: Callable[..., State], h0: State, args: tuple[Any, ...]) -> Levels:
        """The levels with those vmaps as `own` over which h0 or F differs: one call of F, whose draws are taken back."""
        if not any(level.kind == VMAP for level in self.all):
            return self
        devices = [leaf.device for leaf in leaves_of(h0) if leaf.device.type == "cuda"]

        def call(_: list[Tensor]) -> list[Tensor]:
            return [*leaves_of(h0), *leaves_of(function(h0, *args))]

        with torch.random.fork_rng(devices[:1]), self.cleared(), torch.no_grad():
            return self.again([], call)[1]

    def derivatives(self, tensors: Sequence[Tensor], below: int) -> int:
        """How many derivatives of these tensors the transforms take, one a level; `below` are those of autograd below them."""
        found, count = list(tensors), 0
        with ExitStack() as undo:
            for level in reversed(self.all):
                if level.kind == GRAD:
                    count += any(leaf.requires_grad for leaf in found)
                elif level.kind == JVP:
                    count += any(_has_tangent(leaf) for leaf in found)
                found = [_lower(leaf, level) for leaf in found]
                undo.callback(functorch.push_dynamic_layer_stack, functorch.pop_dynamic_layer_stack())
            count += any(_has_tangent(leaf) for leaf in found)
            return count + (below if any(leaf.requires_grad for leaf in found) else 0)


@dataclass(frozen=True)
class Below:
    """A function inside transforms as one of plain tensors, called in a cleared context: F, or an energy."""

    function: Callable[..., State]
    args: tuple[Any, ...]
    levels: Levels

    def __call__(self, state: State) -> State:
        made: list[State] = []

        def call(leaves: list[Tensor]) -> list[Tensor]:
            made.append(self.function(fill(template_of(state), leaves), *self.args))
            return leaves_of(made[0])

        leaves, seen = self.levels.again(leaves_of(state), call)
        if seen.own != self.levels.own:
            raise SteadyStateError(_NOT_AT_FIRST)
        return fill(template_of(made[0]), leaves)


def _dim(tensor: Tensor, level: Level) -> int | None:
    """Where a tensor has the dimension of a vmap; None where it has none."""
    return functorch._unwrap_batched(tensor, level.number)[1] if level.kind == VMAP else None


def _lower(tensor: Tensor, level: Level) -> Tensor:
    """A tensor at the innermost level as the one below it sees it."""
    if level.kind == VMAP:
        return functorch._unwrap_batched(tensor, level.number)[0]
    return functorch._unwrap_for_grad(tensor, level.number)


def _front(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _has_tangent(tensor: Tensor) -> bool:
    return _in_forward_mode() and forward_ad.unpack_dual(tensor).tangent is not None


_ESCAPED = (
    "F was called after the transform of torch.func around its solve had ended, or inside another one: what it closes over is "
    "gone. Use the solution where it was made."
)

_NOT_AT_FIRST = (
    "F did not depend on the vmapped tensors in its first call and does so now: a branch in F (on h = 0?) leaves them out. "
    "Start from another h0, or write the branch with torch.where."
)
