"""Norms that neither underflow nor overflow, a row a problem and a column a leaf of the state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.plain import highest_in, lowest_in
from steadygrad.state.shards import current, greatest, total

Numbers: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"
Mask: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.bool_]]"
Rows: TypeAlias = "slice | numpy.ndarray[Any, numpy.dtype[numpy.int64]]"
"""Which rows of all: indices, or a slice for all of them."""

SAFE = {torch.float32: (1e-15, 1e15), torch.float64: (1e-140, 1e140)}
"""Between these the squares of a norm's terms stay within the range of the dtype, with room for a million of them."""

PIECE, PIECES = 2**10, 64
"""Columns that are copied to float64 at a time, at least; and how many such copies there are at the most."""


def leaf_norms(vectors: Sequence[Tensor], sizes: Sequence[int]) -> list[Numbers]:
    """‖v‖ of every row and leaf for each of the vectors, as (rows, leaves) in float64, after one transfer.

    `sizes` are the columns of each leaf; a vector of one column is a norm already. Where squares would leave the range of
    the dtype, the vector is scaled by its largest entry first.
    """
    if current() is not None:
        return _of_all_ranks(vectors, sizes)
    vectors = [vector.detach() for vector in vectors]
    if len(sizes) == 1 and vectors[0].shape[0] == 1 and (plain := _plain_of_one(vectors)) is not None:
        return [numpy.array([[norm]]) for norm in plain]
    low, high = SAFE[vectors[0].dtype]
    norms = [_norms(vector, sizes, _plain) for vector in vectors]
    # One array for all of them, since each operation on one takes as long as ten on a float.
    found: Numbers = (norms[0] if len(norms) == 1 else torch.cat(norms)).cpu().numpy().astype(numpy.float64)
    if not (low < lowest_in(found) and highest_in(found) < high):
        found = torch.cat([_norms(vector, sizes, _scaled) for vector in vectors]).cpu().numpy()
    if len(vectors) == 1:
        return [found]
    ends = list(accumulate(vector.shape[0] for vector in vectors))
    return [found[begin:end] for begin, end in pairwise([0, *ends])]


def norms_of_one(vectors: Sequence[Tensor], sizes: Sequence[int]) -> list[float]:
    """‖v‖ of each vector, of any shape, states of one leaf, as numbers."""
    if current() is None and (plain := _plain_of_one(vectors)) is not None:
        return plain
    rows = [vector.reshape(1, -1) for vector in vectors]
    return [float(found[0, 0]) for found in leaf_norms(rows, sizes)]  # over ranks, one exchange for all of them


def _plain_of_one(vectors: Sequence[Tensor]) -> list[float] | None:
    """‖v‖ of each vector, of any shape; None where squares on the way to one may have left the range of the dtype."""
    low, high = SAFE[vectors[0].dtype]
    plain: list[float] = []
    for vector in vectors:
        found = torch.linalg.vector_norm(vector).item()
        if not low < found < high:
            return None
        plain.append(found)
    return plain


def within_range(found: Sequence[float], dtype: torch.dtype) -> bool:
    """Whether norms are such that no square on the way to them has left the range of the dtype."""
    low, high = SAFE[dtype]
    return all(low < norm < high for norm in found)


def norms_in(like: Any, vectors: Sequence[Tensor], sizes: Sequence[int]) -> list[Any]:
    """‖v‖ of each vector as floats where `like`, a norm, is one; else as `leaf_norms`."""
    return norms_of_one(vectors, sizes) if isinstance(like, float) else leaf_norms(vectors, sizes)


def _of_all_ranks(vectors: Sequence[Tensor], sizes: Sequence[int]) -> list[Numbers]:
    """`leaf_norms` of vectors that are divided over ranks, after one exchange; two where squares leave the range of float64."""
    known = [vector.shape[1] == 1 for vector in vectors]  # norms already; of a divided vector every rank has two numbers or more
    here = torch.stack([_norms(vector, sizes, _plain).double() for vector in vectors])
    low, high = SAFE[vectors[0].dtype]
    if not (low < float(here.min()) and float(here.max()) < high):  # of this rank alone: others may do otherwise
        here = torch.stack([_norms(vector, sizes, _scaled).double() for vector in vectors])
    found = total(here.square()).sqrt().cpu().numpy()
    low, high = SAFE[torch.float64]
    if not (low < found.min() and found.max() < high):
        largest = greatest(here)
        usable = torch.where((largest > 0) & largest.isfinite(), largest, torch.ones_like(largest))
        found = (total((here / usable).square()).sqrt() * usable).cpu().numpy()
    return [here[i].cpu().numpy() if norm else found[i] for i, norm in enumerate(known)]


def _norms(vector: Tensor, sizes: Sequence[int], norm: Any) -> Tensor:
    vector = vector.detach()
    if vector.shape[1] == 1 and sum(sizes) != 1:
        return vector.abs().expand(-1, len(sizes))
    if len(sizes) == 1:
        return norm(vector)
    return torch.cat([norm(part) for part in vector.split(list(sizes), dim=1)], dim=1)


def _plain(part: Tensor) -> Tensor:
    return torch.linalg.vector_norm(part, dim=1, keepdim=True)


def _scaled(part: Tensor) -> Tensor:
    """Piece by piece: a float64 copy of all of it would be as much memory as two states."""
    largest = torch.linalg.vector_norm(part, ord=math.inf, dim=1, keepdim=True).double()
    usable = torch.where((largest > 0) & largest.isfinite(), largest, torch.ones_like(largest))
    pieces = part.split(max(PIECE, part.shape[1] // PIECES), dim=1)
    return _plain(torch.cat([_plain(piece.double() / usable) for piece in pieces], dim=1)) * usable


def norms(vector: Tensor) -> list[float]:
    """The 2-norm of each row."""
    if vector.shape[0] == 1:
        return norms_of_one([vector], [vector.shape[1]])
    return leaf_norms([vector], [vector.shape[1]])[0][:, 0].tolist()


def numbers(column: Tensor) -> Numbers:
    """A column (problems, 1) as plain numbers."""
    found: Numbers = column.detach()[:, 0].double().cpu().numpy()
    return found
