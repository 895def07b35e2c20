"""Messages along the edges of a graph as one sparse product, with the transpose kept for the backward pass."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadygrad.datasets import undirected

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where a sparse matrix has entries: compressed rows, and the same of its transpose."""

    shape: tuple[int, int]
    starts: Tensor
    columns: Tensor
    transposed_starts: Tensor
    transposed_columns: Tensor
    order: Tensor
    """The entries of the transpose among those of the matrix."""


class Sparse:
    """A fixed sparse matrix A: `A @ h` is one product, its backward pass one with Aᵀ, differentiable to any order.

    It holds plain tensors and makes torch's CSR tensors from them when they are needed, in the dtype of h, and keeps those:
    CSR tensors have no storage, so that a module with one could not be deep-copied. It never changes, so copies share it.
    """

    def __init__(self, pattern: Pattern, values: Tensor) -> None:
        self.pattern = pattern
        self.values = values
        self._pairs: dict[torch.dtype, Pair] = {}

    @classmethod
    def of_entries(cls, rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Sparse:
        """From entries in any order; those at one place are added."""
        places, inverse = torch.unique(rows * shape[1] + columns, return_inverse=True)
        summed = values.new_zeros(len(places)).index_add_(0, inverse, values)
        row, column = places // shape[1], places % shape[1]
        order = torch.argsort(column, stable=True)
        pattern = Pattern(shape, _starts(row, shape[0]), column.int(), _starts(column, shape[1]), row[order].int(), order)
        return cls(pattern, summed)

    @classmethod
    def of_dense(cls, matrix: Tensor) -> Sparse:
        rows, columns = matrix.nonzero().unbind(1)
        height, width = matrix.shape
        return cls.of_entries(rows, columns, matrix[rows, columns], (height, width))

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.shape

    def with_values(self, values: Tensor) -> Sparse:
        """The same places with other values; nothing is sorted again."""
        return Sparse(self.pattern, values)

    def __matmul__(self, h: Tensor) -> Tensor:
        if h.ndim != 2 or len(h) != self.shape[1]:
            raise ValueError(f"a sparse matrix of shape {self.shape} cannot be multiplied with {tuple(h.shape)}.")
        return Product.apply(self._pair(h.dtype), h)

    def dense(self) -> Tensor:
        rows = torch.repeat_interleave(torch.arange(self.shape[0]), self.pattern.starts.diff().long())
        out = self.values.new_zeros(self.shape)
        out[rows, self.pattern.columns.long()] = self.values
        return out

    def _pair(self, dtype: torch.dtype) -> Pair:
        if dtype not in self._pairs:
            p, values = self.pattern, self.values.to(dtype)
            height, width = p.shape
            self._pairs[dtype] = (
                _csr(p.starts, p.columns, values, (height, width)),
                _csr(p.transposed_starts, p.transposed_columns, values[p.order], (width, height)),
            )
        return self._pairs[dtype]

    def __deepcopy__(self, memo: dict[int, Any]) -> Sparse:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pairs": {}}


class Product(torch.autograd.Function):
    """A h; its derivative with respect to h is Aᵀ, by the same Function, so that it can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, pair: Pair, h: Tensor) -> Tensor:
        ctx.pair = pair
        return pair[0] @ h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        matrix, transpose = ctx.pair
        return None, Product.apply((transpose, matrix), grads[0])


def neighbours(edge_index: Tensor, nodes: int) -> Sparse:
    """A: (A h)_i is the sum of h over the sources of the edges into node i. A duplicate edge counts twice."""
    ones = torch.ones(edge_index.shape[1])
    return Sparse.of_entries(edge_index[1], edge_index[0], ones, (nodes, nodes))


def normalised(edge_index: Tensor, nodes: int) -> Sparse:
    """Â = D^-½ (A + I) D^-½ of the undirected graph without duplicates; D has the row sums of A + I. Kipf and Welling 2017.

    Â is symmetric with ‖Â‖₂ = ρ(Â) = 1. Every node gets one self loop, whether the edges have it or not, so that an isolated
    node has Â_ii = 1 and keeps what it has.
    """
    own = torch.arange(nodes).expand(2, -1)
    rows, columns = torch.cat([undirected(edge_index), own], dim=1)
    scale = torch.bincount(rows, minlength=nodes).double().rsqrt()
    return Sparse.of_entries(rows, columns, (scale[rows] * scale[columns]).float(), (nodes, nodes))


def _starts(sorted_rows: Tensor, count: int) -> Tensor:
    return torch.nn.functional.pad(torch.bincount(sorted_rows, minlength=count).cumsum(0), (1, 0)).int()


def _csr(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)
