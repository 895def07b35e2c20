"""Walks over nested tuples, lists and dicts: the one place that knows how a state is put together.

What maps rests on `map_nested`. torch has such walks too (`torch.utils._pytree`), but private ones, with a registry of
types that other libraries extend: what counts as a state would then depend on what else was imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

State = Any
"""A tensor, or any nesting of tuples, lists and dicts of tensors."""


def map_nested(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """`function` of what stands at the same place in all of them, in the nesting of the first.

    A leaf is whatever is no tuple, list or dict. Named tuples stay what they are; other subclasses become plain tuples, lists
    and dicts. The others are indexed by the keys of the first, so that their dicts may be ordered otherwise.
    """
    if isinstance(first, dict):
        keys = cast("dict[Any, Any]", first)
        return {key: map_nested(function, keys[key], *(other[key] for other in others)) for key in keys}
    if isinstance(first, (tuple, list)):
        items = cast("Sequence[Any]", first)
        parts = [map_nested(function, item, *(other[i] for other in others)) for i, item in enumerate(items)]
        if isinstance(items, list):
            return parts
        return type(items)(*parts) if hasattr(items, "_fields") else tuple(parts)
    return function(first, *others)


def map_plain(function: Callable[[Any], Any], nested: Any) -> Any:
    """`function` of each leaf, in plain dicts, lists and tuples: named tuples become tuples too, as a file without code needs."""
    if isinstance(nested, dict):
        return {key: map_plain(function, item) for key, item in cast("dict[Any, Any]", nested).items()}
    if isinstance(nested, (tuple, list)):
        items = [map_plain(function, item) for item in cast("Sequence[Any]", nested)]
        return items if isinstance(nested, list) else tuple(items)
    return function(nested)


def map_state(function: Callable[[Tensor], Any], state: State) -> State:
    """A state with `function` applied to each of its tensors; anything in it that is no tensor is refused."""

    def of_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            raise TypeError(
                f"a state is a tensor, or a nesting of tuples, lists and dicts of tensors; got {type(leaf).__name__} "
                f"({leaf!r:.60}) in it."
            )
        return function(leaf)

    return map_nested(of_leaf, state)


def map_tensors(function: Callable[[Tensor], Tensor], args: Any) -> Any:
    """Nested arguments with `function` applied to the tensors in them; the rest stays as it is."""

    def of_leaf(leaf: Any) -> Any:
        return function(leaf) if isinstance(leaf, Tensor) else leaf

    return map_nested(of_leaf, args)


def leaves_of(state: State) -> list[Tensor]:
    """The tensors of a state in their order; anything in it that is no tensor is refused."""
    if isinstance(state, Tensor):
        return [state]
    found: list[Tensor] = []
    map_state(found.append, state)
    return found


def tensors_in(args: Any) -> list[Tensor]:
    """The tensors in nested arguments, whatever else there is."""
    found: list[Tensor] = []

    def collect(leaf: Tensor) -> Tensor:
        found.append(leaf)
        return leaf

    map_tensors(collect, args)
    return found


def template_of(state: State) -> State:
    """The nesting of a state with None in the place of each tensor, for `in_order` and `fill`."""
    return map_state(lambda _: None, state)


def in_order(template: State, state: State) -> list[Tensor]:
    """The tensors of a state that has the structure of the template, in the template's order."""
    found: list[Tensor] = []

    def collect(_: None, leaf: Tensor) -> None:
        found.append(leaf)

    map_nested(collect, template, state)
    return found


def fill(template: State, leaves: Iterable[Tensor]) -> State:
    """The state with these tensors in the nesting of the template."""
    remaining = iter(leaves)

    def take(_: None) -> Tensor:
        return next(remaining)

    return map_nested(take, template)


def combine(function: Callable[[Tensor, Tensor], Tensor], a: State, b: State) -> State:
    """`function` of each tensor of a state and its counterpart in another of the same structure."""
    return map_nested(function, a, b)


def alike(a: State, b: State) -> bool:
    """Whether two states have the same nesting. Faster than to compare `structure_of`, since training asks at every step."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(item, b[key]) for key, item in cast("dict[Any, State]", a).items())
    return structure_of(a) == structure_of(b)


def same_data(a: Any, b: Any) -> bool:
    """Whether two nestings are of the same types and hold equal tensors; anything else in them must be the same object."""
    if a is b:
        return True
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        mine, other = cast("dict[Any, Any]", a), cast("dict[Any, Any]", b)
        return mine.keys() == other.keys() and all(same_data(item, other[key]) for key, item in mine.items())
    if isinstance(a, (list, tuple)):
        many, others = cast("Sequence[Any]", a), cast("Sequence[Any]", b)
        return len(many) == len(others) and all(map(same_data, many, others))
    return False


def structure_of(state: State) -> str:
    """The nesting as text, for comparison and messages: `(tensor, {'c': tensor})`."""
    if isinstance(state, Tensor):
        return "tensor"
    if isinstance(state, (tuple, list)):
        inner = ", ".join(structure_of(item) for item in cast("Sequence[State]", state))
        return f"({inner})" if isinstance(state, tuple) else f"[{inner}]"
    if isinstance(state, dict):
        items = cast("dict[Any, State]", state).items()
        named = sorted(items, key=lambda item: repr(item[0]))  # their order says nothing
        return "{" + ", ".join(f"{key!r}: {structure_of(item)}" for key, item in named) + "}"
    return type(state).__name__
