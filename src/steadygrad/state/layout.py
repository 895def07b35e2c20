"""Nested states and the flat form the solvers work on: one row for each independent problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from steadygrad.state.tree import State, fill, in_order, leaves_of, map_state, structure_of, template_of

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Layout:
    """How a state lies in a matrix of `problems` rows and `size` columns.

    The first `batch_dims` dimensions of every leaf index independent problems; without any there is one row. A state of
    one tensor becomes a view, a nested one is concatenated.
    """

    template: State
    """The nesting, with None for each tensor."""
    structure: str
    """The nesting as text."""
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
        first = leaves[0]
        for leaf in leaves:
            _check_leaf(leaf, first)
        if first is state and not torch.compiler.is_exporting():  # whose shapes may be symbols, which are not looked up
            return _of_tensor(first.shape, batch_dims, first.dtype, first.device)
        shapes = tuple(leaf.shape for leaf in leaves)
        batch = _batch_of(shapes, batch_dims)
        sizes = tuple(leaf.numel() // max(batch.numel(), 1) for leaf in leaves)
        return cls(template_of(state), structure_of(state), shapes, batch, sizes, first.dtype, first.device)

    def of_rows(self, rows: int) -> Layout:
        """The layout of that many of the problems, under one batch dimension."""
        shapes = tuple(torch.Size([rows, *shape[len(self.batch) :]]) for shape in self.shapes)
        return replace(self, shapes=shapes, batch=torch.Size([rows]))

    @cached_property
    def problems(self) -> int:
        return self.batch.numel()

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """The shape of the only tensor, as `view` takes it in half the time."""
        return tuple(self.shapes[0])

    @cached_property
    def viewable(self) -> bool:
        """Whether the matrix is a view of the only tensor, and the other way round."""
        return len(self.sizes) == 1 and self.dtype not in HALF

    @property
    def args_batch(self) -> torch.Size:
        """The dimensions with which arguments begin that belong to the problems."""
        return self.batch

    @property
    def flat_dtype(self) -> torch.dtype:
        """The dtype of the matrix: solvers compute in float32 where the state has half precision."""
        return torch.float32 if self.dtype in HALF else self.dtype

    def flatten(self, leaves: Sequence[Tensor]) -> Tensor:
        """The leaves as one matrix, a row a problem."""
        if self.dtype in HALF:
            leaves = [leaf.float() for leaf in leaves]
        if len(leaves) == 1:
            return leaves[0].reshape(self.problems, -1)
        return torch.cat([leaf.reshape(self.problems, -1) for leaf in leaves], dim=1)

    def split(self, flat: Tensor) -> list[Tensor]:
        """The leaves of a matrix: views of it, or copies in half precision."""
        if self.dtype in HALF:
            flat = flat.to(self.dtype)
        if len(self.sizes) == 1:
            return [flat.view(self.dims)]
        parts: list[Tensor] = []
        start = 0
        for shape, size in zip(self.shapes, self.sizes, strict=True):
            parts.append(flat.narrow(1, start, size).reshape(shape))
            start += size
        return parts

    def nest(self, leaves: Sequence[Tensor]) -> State:
        """The leaves in the nesting of the state."""
        return leaves[0] if self.template is None else fill(self.template, leaves)

    def check(self, result: State) -> list[Tensor]:
        """The leaves of what F returned, or an error that says how it differs from a state.

        Under autocast F's operations return their own dtype; the result is then cast to that of the state.
        """
        if isinstance(result, Tensor) and self.template is None:
            leaves = [result]
        else:
            got = structure_of(result)
            if got != self.structure:
                raise TypeError(
                    f"update returned {got} for a state of structure {self.structure}; F must map a state to a state of the "
                    "same structure. Did it forget to return, or return outputs besides the state?"
                )
            leaves = in_order(self.template, result)
        return [self._checked(leaf, shape) for leaf, shape in zip(leaves, self.shapes, strict=True)]

    def _checked(self, leaf: Tensor, shape: torch.Size) -> Tensor:
        """A tensor that F returned, in the dtype of the state, or an error."""
        if leaf.is_nested or leaf.layout is not torch.strided:
            raise TypeError(f"update returned {_kind_of(leaf)}; {_DENSE}")
        if leaf.shape != shape:
            raise ValueError(
                f"update returned shape {tuple(leaf.shape)} for a state of shape {tuple(shape)}; "
                "F must map a state to a state of the same shape."
            )
        if leaf.device != self.device:
            raise ValueError(f"update returned a tensor on {leaf.device} for a state on {self.device}; F must keep the device.")
        if leaf.dtype == self.dtype:
            return leaf
        if leaf.dtype.is_floating_point and torch.is_autocast_enabled(self.device.type):
            return leaf.to(self.dtype)
        raise TypeError(
            f"update returned {leaf.dtype} for a state of {self.dtype}; F must keep the dtype. "
            "Give h0 the dtype of the parameters, or cast the result."
        )


def in_full_precision(state: State) -> State:
    """A state in float32 where autocast is on and has made it bfloat16 or float16; elsewhere the state itself.

    Under autocast F computes in half precision, but a residual of 1e-5 has no meaning in it: the solver's vectors stay float32.
    """

    def of_leaf(leaf: Tensor) -> Tensor:
        half = leaf.dtype in (torch.float16, torch.bfloat16)
        return leaf.float() if half and torch.is_autocast_enabled(leaf.device.type) else leaf

    return of_leaf(state) if isinstance(state, Tensor) else map_state(of_leaf, state)


@lru_cache(maxsize=64)
def _of_tensor(shape: torch.Size, batch_dims: int, dtype: torch.dtype, device: torch.device) -> Layout:
    """The layout of a state of one tensor: the same in every solve of a training."""
    batch = _batch_of((shape,), batch_dims)
    return Layout(None, "tensor", (shape,), batch, (shape.numel() // max(batch.numel(), 1),), dtype, device)


def _batch_of(shapes: Sequence[torch.Size], batch_dims: int) -> torch.Size:
    batch = shapes[0][:batch_dims]
    for shape in shapes:
        if len(shape) < batch_dims:
            raise ValueError(f"batch_dims={batch_dims}, but the state has a tensor of shape {tuple(shape)}.")
        if shape[:batch_dims] != batch:
            raise ValueError(
                f"with batch_dims={batch_dims} all tensors of the state must begin with the same dimensions; "
                f"got {tuple(shapes[0])} and {tuple(shape)}."
            )
    return batch


def _check_leaf(leaf: Tensor, first: Tensor) -> None:
    if leaf.is_nested or leaf.layout is not torch.strided:
        raise TypeError(f"a state must be a dense tensor; got {_kind_of(leaf)}; {_DENSE}")
    if type(leaf).__name__ == "DTensor":  # by its name: torch.distributed.tensor takes long to import
        raise TypeError(
            "a state cannot be a DTensor: F does its own exchange between ranks. Give the part of this rank, h0.to_local(), and "
            "group=h0.device_mesh.get_group(); DTensor.from_local makes one of the value."
        )
    if leaf.device.type == "meta":
        raise TypeError("a state on the meta device has no values to iterate; give h0 on a real device (.to_empty(), zeros).")
    if not leaf.dtype.is_floating_point:
        advice = "view_as_real() it" if leaf.dtype.is_complex else "call .float() or .double() on h0"
        raise TypeError(f"a state must be real and floating point to have a gradient; got {leaf.dtype}: {advice}.")
    if leaf.dtype.itemsize < 2:
        raise TypeError(
            f"a state of {leaf.dtype} cannot be iterated: torch has no arithmetic in it; call .float() on h0, and let F "
            "convert inside."
        )
    if leaf.numel() == 0:
        raise ValueError(f"the state is empty: it has a tensor of shape {tuple(leaf.shape)}.")
    if leaf.dtype != first.dtype or leaf.device != first.device:
        raise TypeError(
            f"all tensors of a state must share dtype and device; got {first.dtype} on {first.device} "
            f"and {leaf.dtype} on {leaf.device}."
        )


_DENSE = "a state is a dense tensor: call .to_dense(), or pad a nested tensor (torch.nested.to_padded_tensor)."


def _kind_of(tensor: Tensor) -> str:
    return "a nested tensor" if tensor.is_nested else f"a tensor of layout {tensor.layout}"
