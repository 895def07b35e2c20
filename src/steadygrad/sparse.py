"""A sparse matrix for the inside of F: quick forward and backward, differentiable to any order."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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


class SparseMatrix:
    """A fixed sparse matrix A of which `A @ h` is quick in both directions, and differentiable in h to any order.

    Forward is one product with A, backward one with Aᵀ, which is kept: torch's own CSR product builds what it needs in every
    backward pass and takes some thirty times as long there (70 ms against 2.2 on Cora). The entries are constants: no gradient
    reaches them. Entries that stand at one place are added.

    Memory: A and Aᵀ, in every dtype that h had. On the device of its values; h must be there too. CSR tensors have no storage, so
    that a module with one could not be deep-copied: this holds plain tensors, makes the CSR ones when they are needed, and is
    shared by copies, since it never changes.

    PageRank: h = (1 − d) u + d P h with the transposed link probabilities P, and how the rank of page 2 changes with u:

    >>> import steadygrad as sg
    >>> links, shares = torch.tensor([[1, 2, 2, 0], [0, 0, 1, 2]]), torch.tensor([0.5, 0.5, 1.0, 1.0])
    >>> P = SparseMatrix.of_entries(links[0], links[1], shares, (3, 3))
    >>> u = torch.full((3, 1), 1 / 3, requires_grad=True)
    >>> rank = sg.steady_state(lambda h: 0.15 * u + 0.85 * (P @ h), torch.full((3, 1), 1 / 3)).value
    >>> [round(share, 3) for share in rank.flatten().tolist()]
    [0.388, 0.215, 0.397]
    >>> rank[2].sum().backward()
    >>> [round(slope, 3) for slope in u.grad.flatten().tolist()]
    [0.356, 0.384, 0.452]
    """

    def __init__(self, pattern: Pattern, values: Tensor) -> None:
        self.pattern = pattern
        self.values = values
        self._pairs: dict[torch.dtype, Pair] = {}

    @classmethod
    def of_entries(cls, rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> SparseMatrix:
        """From (count,) row and column numbers and values in any order; those at one place are added.

        >>> rows, columns = torch.tensor([0, 0, 1]), torch.tensor([1, 1, 0])
        >>> SparseMatrix.of_entries(rows, columns, torch.tensor([1.0, 2.0, 5.0]), (2, 2)).dense()
        tensor([[0., 3.],
                [5., 0.]])
        """
        if not (rows.shape == columns.shape == values.shape and rows.ndim == 1):
            got = ", ".join(str(tuple(given.shape)) for given in (rows, columns, values))
            raise ValueError(f"rows, columns and values must be (count,) each; got {got}.")
        for name, found, limit in (("rows", rows, shape[0]), ("columns", columns, shape[1])):
            if found.dtype != torch.int64 or (found.numel() and not 0 <= int(found.min()) <= int(found.max()) < limit):
                raise ValueError(f"{name} must be int64 from 0 to {limit - 1}, as shape={tuple(shape)} has it.")
        if values.requires_grad:
            raise ValueError("values need a gradient, which would be lost: they are constants here; detach() them.")
        places, inverse = torch.unique(rows * shape[1] + columns, return_inverse=True)
        summed = values.new_zeros(len(places)).index_add_(0, inverse, values)
        row, column = places // shape[1], places % shape[1]
        order = torch.argsort(column, stable=True)
        pattern = Pattern(shape, _starts(row, shape[0]), column.int(), _starts(column, shape[1]), row[order].int(), order)
        return cls(pattern, summed)

    @classmethod
    def of_dense(cls, matrix: Tensor) -> SparseMatrix:
        """From a dense matrix: its entries that are not zero."""
        rows, columns = matrix.nonzero().unbind(1)
        height, width = matrix.shape
        return cls.of_entries(rows, columns, matrix[rows, columns], (height, width))

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.shape

    def with_values(self, values: Tensor) -> SparseMatrix:
        """The same places with other values, in the order of `values`; nothing is sorted again."""
        return SparseMatrix(self.pattern, values)

    def __matmul__(self, h: Tensor) -> Tensor:
        """A h for h of shape (columns, width) or (columns,)."""
        if h.ndim not in (1, 2) or len(h) != self.shape[1]:
            raise ValueError(
                f"a sparse matrix of shape {self.shape} cannot be multiplied with {tuple(h.shape)}; give (columns, width)."
            )
        if h.ndim == 1:
            return (self @ h.unsqueeze(1)).squeeze(1)
        return Product.apply(self._pair(h.dtype), h)

    def dense(self) -> Tensor:
        """The same as a dense matrix."""
        starts = self.pattern.starts
        rows = torch.repeat_interleave(torch.arange(self.shape[0], device=starts.device), self.pattern.starts.diff().long())
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

    def __repr__(self) -> str:
        return f"SparseMatrix({self.shape[0]} × {self.shape[1]}, {len(self.values)} entries)"

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseMatrix:
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


def _starts(sorted_rows: Tensor, count: int) -> Tensor:
    return torch.nn.functional.pad(torch.bincount(sorted_rows, minlength=count).cumsum(0), (1, 0)).int()


def _csr(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)
