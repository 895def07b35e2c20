"""Nested states and the flat form the solvers work on: one row for each independent problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

State = Any
"""A tensor, or any nesting of tuples, lists and dicts of tensors."""


def leaves_of(state: State) -> list[Tensor]:
    """The tensors of a nested state, in order; anything that is no tensor is refused."""
    found: list[Tensor] = []
    map_state(lambda leaf: (found.append(leaf), leaf)[1], state)
    return found


def map_state(function: Callable[[Tensor], Any], state: State) -> State:
    """The same nesting with `function` applied to each tensor."""
    if isinstance(state, Tensor):
        return function(state)
    if isinstance(state, tuple):
        items = [map_state(function, item) for item in cast("tuple[State, ...]", state)]
        return type(state)(*items) if hasattr(state, "_fields") else tuple(items)
    if isinstance(state, list):
        return [map_state(function, item) for item in cast("list[State]", state)]
    if isinstance(state, dict):
        return {key: map_state(function, item) for key, item in cast("dict[Any, State]", state).items()}
    raise TypeError(
        f"a state is a tensor, or a nesting of tuples, lists and dicts of tensors; got {type(state).__name__} "
        f"({state!r:.60}) in it."
    )


def structure_of(state: State) -> str:
    """The nesting as text, for comparison and messages: `(tensor, {'c': tensor})`."""
    if isinstance(state, Tensor):
        return "tensor"
    if isinstance(state, (tuple, list)):
        inner = ", ".join(structure_of(item) for item in cast("Sequence[State]", state))
        return f"({inner})" if isinstance(state, tuple) else f"[{inner}]"
    if isinstance(state, dict):
        items = sorted(cast("dict[Any, State]", state).items(), key=lambda item: repr(item[0]))  # their order says nothing
        return "{" + ", ".join(f"{key!r}: {structure_of(item)}" for key, item in items) + "}"
    return type(state).__name__


@dataclass(frozen=True)
class Layout:
    """How a state lies in a matrix of `problems` rows and `size` columns.

    The first `batch_dims` dimensions of every leaf index independent problems; without any there is one row. A state of
    one tensor becomes a view, a nested one is concatenated.
    """

    template: State
    shapes: tuple[torch.Size, ...]
    batch: torch.Size
    sizes: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, state: State, batch_dims: int = 0) -> Layout:
        leaves = leaves_of(state)
        if not leaves:
            raise ValueError(f"the state holds no tensor: {structure_of(state)}.")
        for leaf in leaves:
            _check_leaf(leaf, leaves[0])
        batch = _batch_of(leaves, batch_dims)
        sizes = tuple(leaf.numel() // max(batch.numel(), 1) for leaf in leaves)
        return cls(
            template=map_state(lambda _: None, state),
            shapes=tuple(leaf.shape for leaf in leaves),
            batch=batch,
            sizes=sizes,
            dtype=leaves[0].dtype,
            device=leaves[0].device,
        )

    def of_rows(self, rows: int) -> Layout:
        """The layout of that many of the problems, under one batch dimension."""
        shapes = tuple(torch.Size([rows, *shape[len(self.batch) :]]) for shape in self.shapes)
        return replace(self, shapes=shapes, batch=torch.Size([rows]))

    @property
    def problems(self) -> int:
        return self.batch.numel()

    def flatten(self, leaves: Sequence[Tensor]) -> Tensor:
        """The leaves as one matrix, a row a problem."""
        if len(leaves) == 1:
            return leaves[0].reshape(self.problems, -1)
        return torch.cat([leaf.reshape(self.problems, -1) for leaf in leaves], dim=1)

    def split(self, flat: Tensor) -> list[Tensor]:
        """The leaves of a matrix: views of it."""
        if len(self.sizes) == 1:
            return [flat.view(self.shapes[0])]
        parts: list[Tensor] = []
        start = 0
        for shape, size in zip(self.shapes, self.sizes, strict=True):
            parts.append(flat.narrow(1, start, size).reshape(shape))
            start += size
        return parts

    def leaf_norms(self, flat: Tensor) -> Tensor:
        """The 2-norm of each leaf of each problem, (problems, leaves); no square of an element leaves the range of the dtype."""
        norms: list[Tensor] = []
        for leaf in flat.split(self.sizes, dim=1):
            largest = leaf.abs().amax(dim=1, keepdim=True)
            unit = torch.where((largest > 0) & largest.isfinite(), largest, torch.ones_like(largest))
            norms.append(unit * torch.linalg.vector_norm(leaf / unit, dim=1, keepdim=True))
        return torch.cat(norms, dim=1)

    def nest(self, leaves: Sequence[Tensor]) -> State:
        """The leaves in the nesting of the state."""
        remaining = iter(leaves)
        return _fill(self.template, remaining)

    def check(self, result: State) -> list[Tensor]:
        """The leaves of what F returned, or an error that says how it differs from a state."""
        if isinstance(result, Tensor) and self.template is None:
            leaves = [result]
        else:
            expected = structure_of(self.nest([torch.empty(0)] * len(self.shapes)))
            got = structure_of(result)
            if got != expected:
                raise TypeError(
                    f"update returned {got} for a state of structure {expected}; F must map a state to a state of the "
                    "same structure. Did it forget to return, or return outputs besides the state?"
                )
            leaves = in_order(self.template, result)
        for leaf, shape in zip(leaves, self.shapes, strict=True):
            if leaf.shape != shape:
                raise ValueError(
                    f"update returned shape {tuple(leaf.shape)} for a state of shape {tuple(shape)}; "
                    "F must map a state to a state of the same shape."
                )
            if leaf.layout is not torch.strided:
                raise TypeError(f"update returned a tensor of layout {leaf.layout}; call .to_dense() on it.")
            if leaf.dtype != self.dtype:
                raise TypeError(
                    f"update returned {leaf.dtype} for a state of {self.dtype}; F must keep the dtype. "
                    "Give h0 the dtype of the parameters, or cast the result (autocast changes it too)."
                )
            if leaf.device != self.device:
                raise ValueError(
                    f"update returned a tensor on {leaf.device} for a state on {self.device}; F must keep the device."
                )
        return leaves


def in_order(template: State, state: State) -> list[Tensor]:
    """The tensors of a state of the same structure, in the order of the template."""
    if template is None:
        return [state]
    keys = template if isinstance(template, dict) else range(len(template))
    return [leaf for key in cast("Sequence[Any]", keys) for leaf in in_order(template[key], state[key])]


def _fill(template: State, leaves: Any) -> State:
    if template is None:
        return next(leaves)
    if isinstance(template, tuple):
        items = [_fill(item, leaves) for item in cast("tuple[State, ...]", template)]
        return type(template)(*items) if hasattr(template, "_fields") else tuple(items)
    if isinstance(template, list):
        return [_fill(item, leaves) for item in cast("list[State]", template)]
    return {key: _fill(item, leaves) for key, item in cast("dict[Any, State]", template).items()}


def _batch_of(leaves: Sequence[Tensor], batch_dims: int) -> torch.Size:
    batch = leaves[0].shape[:batch_dims]
    for leaf in leaves:
        if leaf.dim() < batch_dims:
            raise ValueError(f"batch_dims={batch_dims}, but the state has a tensor of shape {tuple(leaf.shape)}.")
        if leaf.shape[:batch_dims] != batch:
            raise ValueError(
                f"with batch_dims={batch_dims} all tensors of the state must begin with the same dimensions; "
                f"got {tuple(leaves[0].shape)} and {tuple(leaf.shape)}."
            )
    return batch


def _check_leaf(leaf: Tensor, first: Tensor) -> None:
    if not leaf.dtype.is_floating_point:
        advice = "view_as_real() it" if leaf.dtype.is_complex else "call .float() or .double() on h0"
        raise TypeError(f"a state must be real and floating point to have a gradient; got {leaf.dtype}: {advice}.")
    if leaf.numel() == 0:
        raise ValueError(f"the state is empty: it has a tensor of shape {tuple(leaf.shape)}.")
    if leaf.layout is not torch.strided:
        raise TypeError(f"a state must be a dense tensor; got layout {leaf.layout}: call .to_dense() on h0.")
    if leaf.dtype != first.dtype or leaf.device != first.device:
        raise TypeError(
            f"all tensors of a state must share dtype and device; got {first.dtype} on {first.device} "
            f"and {leaf.dtype} on {leaf.device}."
        )
