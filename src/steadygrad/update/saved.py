"""What the graph of F has saved: held so that torch watches it, and compared so that no change of it goes unseen."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from steadygrad.failure import SteadyStateError


def packing_is_on() -> bool:
    """Whether something around us packs what graphs save, as activation checkpointing does."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None  # pyright: ignore[reportAttributeAccessIssue]


class Saved:
    """The tensors that the graph of F saved, held so that they can be handed to an autograd Function and taken back.

    A Function that saves them lets torch watch them for in-place changes and lets an enclosing checkpoint drop and
    recompute them once a backward pass; left in the graph, a checkpoint would recompute them once a product.

    torch does not watch tensors that hooks have packed. Until they are taken their versions are compared here: F itself may
    change what it has just used (y = sigmoid(h); y *= 0.5), and products with J would be those of other values.
    """

    class Holder:
        """One saved tensor, with the version at which the graph saved it."""

        def __init__(self, tensor: Tensor) -> None:
            self.hold(tensor)

        def hold(self, tensor: Tensor | None) -> None:
            self.tensor = tensor
            self.version = 0 if tensor is None or tensor.is_inference() else tensor._version

    def __init__(self) -> None:
        # The graph owns the holders: what it frees after a backward pass is free.
        self._holders: list[weakref.ref[Saved.Holder]] = []

    def pack(self, tensor: Tensor) -> Saved.Holder:
        holder = Saved.Holder(tensor.detach())  # not the tensor itself, which may own the graph that owns the holder
        self._holders.append(weakref.ref(holder))
        return holder

    @staticmethod
    def unpack(holder: Saved.Holder) -> Tensor:
        tensor = holder.tensor
        assert tensor is not None, "the backward pass puts the tensors back first"
        if not tensor.is_inference() and tensor._version != holder.version:
            what = f"shape {tuple(tensor.shape)}, version {tensor._version}, expected {holder.version}"
            raise SteadyStateError(CHANGED.format(what))
        return tensor

    def take(self) -> list[Tensor]:
        """Take the tensors out of the graph."""
        if not self._holders:
            return []
        holders = [holder for ref in self._holders if (holder := ref()) is not None]
        self._holders = [weakref.ref(holder) for holder in holders]
        tensors = [Saved.unpack(holder) for holder in holders]
        for holder in holders:
            holder.hold(None)
        return tensors

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Put them back, in the order in which they were taken."""
        for ref, tensor in zip(self._holders, tensors, strict=True):
            if (holder := ref()) is not None:
                holder.hold(tensor)


CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: {}. F, or what ran after "
    "it, changed a tensor that F had used before. Replace in-place operations in F (y *= 0.5, y.relu_(), writing into a buffer) "
    "by their out-of-place forms."
)
