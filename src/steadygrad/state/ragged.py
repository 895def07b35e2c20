"""Graphs batched as one: a problem a graph, whose nodes stand anywhere in the first dimension of the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from steadygrad.state import Layout, State


@dataclass(frozen=True)
class RaggedLayout(Layout):
    """How the nodes of several graphs lie in a matrix with a row a graph: in their order, with zeros behind them.

    The zeros stay zeros and add nothing to norms and inner products. F is always called on all graphs: what belongs to one of
    them is not known, so that none can be left out.
    """

    places: Tensor
    """For each node, its place among (graphs · nodes of the largest)."""
    most: int
    """The nodes of the largest graph."""

    @classmethod
    def by(cls, state: State, index: Tensor) -> RaggedLayout:
        """The layout of a state whose tensors begin with a node dimension, and of which graph each node is part."""
        whole = Layout.of(state)
        nodes = _checked(index, whole)
        counts = torch.bincount(index)
        most = int(counts.max())
        order = torch.argsort(index, stable=True)
        first = torch.cumsum(counts, 0) - counts
        rank = torch.empty_like(order)
        rank[order] = torch.arange(nodes, device=index.device) - first[index[order]]
        return cls(
            template=whole.template,
            structure=whole.structure,
            shapes=whole.shapes,
            batch=torch.Size([len(counts)]),
            sizes=tuple(most * (shape.numel() // nodes) for shape in whole.shapes),
            dtype=whole.dtype,
            device=whole.device,
            places=(index * most + rank).to(whole.device),
            most=most,
        )

    @cached_property
    def viewable(self) -> bool:
        return False

    @property
    def args_batch(self) -> torch.Size:
        """Arguments may have any shape: nobody takes them apart."""
        return torch.Size()

    def flatten(self, leaves: Sequence[Tensor]) -> Tensor:
        """The nodes of each graph in its row, for every leaf, and zeros behind them."""
        rows = self.batch[0]
        parts: list[Tensor] = []
        for leaf, size in zip(leaves, self.sizes, strict=True):
            nodes = leaf.reshape(len(self.places), -1).to(self.flat_dtype)
            padded = nodes.new_zeros(rows * self.most, nodes.shape[1]).index_copy(0, self.places, nodes)
            parts.append(padded.reshape(rows, size))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def split(self, flat: Tensor) -> list[Tensor]:
        """The nodes of all graphs, in the order of the user's state, for every leaf."""
        parts = flat.to(self.dtype).split(list(self.sizes), dim=1)
        return [
            part.reshape(self.batch[0] * self.most, -1)[self.places].reshape(shape)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]


def _checked(index: Any, whole: Layout) -> int:
    """The number of nodes, where the index has one number for each and leaves out no graph."""
    nodes = {shape[0] if shape else None for shape in whole.shapes}
    if not isinstance(index, Tensor) or index.dtype.is_floating_point or index.dtype in (torch.bool, torch.complex64):
        raise TypeError(f"batch_index is a tensor of whole numbers, the graph of each node; got {index!r:.60}.")
    if len(nodes) != 1 or index.shape != (count := cast("int", nodes.pop()),):
        shapes = [tuple(shape) for shape in whole.shapes]
        raise ValueError(
            f"batch_index has one number a node, shape ({whole.shapes[0][0] if whole.shapes[0] else '…'},) for tensors of the "
            f"shapes {shapes}, which all begin with the nodes; got {tuple(index.shape)}."
        )
    if int(index.min()) < 0:
        raise ValueError(f"the graphs of batch_index count from 0; got {int(index.min())}.")
    missing = (torch.bincount(index) == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(f"batch_index names the graphs 0 to {int(index.max())}, but graph {missing[0]} has no node.")
    return count
