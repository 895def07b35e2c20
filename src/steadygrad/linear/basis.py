"""A growing orthonormal basis, for each row, in blocks: room as needed, and no copy when it grows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.norms import Numbers
from steadygrad.state.rows import norm, ratio
from steadygrad.state.shards import columns_of_all, total

BLOCK = (8, 64)
"""Vectors a block, at the least and of small vectors: few enough to waste little, many enough for products that pay."""
ROOM = 2**17
"""Numbers up to which a block has room for more than the least: half a megabyte costs less than calls for a second block."""
CANCELLED = 0.5
"""A vector of which less than this share is left is made orthogonal once more (Daniel, Gragg, Kaufman, Stewart 1976)."""


ONCE = 0.2
"""Several vectors, of one of which less than this share is left, are made orthogonal once more: the basis stays orthogonal to ten
roundings, and residuals are what they were, over ten families in float32 and float64; with 0.1 non-normal ones lose it."""

add, least_of = numpy.add.reduce, numpy.minimum.reduce  # of few numbers faster than the methods of arrays


class Basis(NamedTuple):
    """Vectors of shape (problems, size), the first `filled` of what the blocks (problems, vectors, size) have room for."""

    blocks: tuple[Tensor, ...]
    filled: int

    @classmethod
    def of(cls, vectors: Tensor) -> Basis:
        """A basis that begins with orthonormal vectors (problems, count, size)."""
        return cls.empty(vectors, vectors.shape[1] + 1)._with(vectors)

    @classmethod
    def empty(cls, like: Tensor, count: int) -> Basis:
        """A basis of no vectors, with room for at least so many like those of (problems, some, size)."""
        return cls((_room(like, count),), 0)

    @property
    def size(self) -> int:
        """How many numbers a vector has, on all ranks together."""
        return columns_of_all(self.blocks[0].shape[2])

    @property
    def last(self) -> Tensor:
        return self.blocks[-1][:, self._in_last(self.filled) - 1].contiguous()

    def absorb(self, vector: Tensor, floor: Tensor | float = 0.0, relative: float = 0.0) -> tuple[Basis, Tensor, Tensor]:
        """The basis with the part of a vector that is new, normalised; its coefficients on the basis; the size of that part.

        A part no larger than `floor`, or than `relative` of the vector, is rounding: zero is appended for it.
        """
        column, rest = self._split(vector.unsqueeze(1))
        length = norm(rest[:, 0])
        whole = torch.hypot(torch.linalg.vector_norm(column, dim=2), length)
        if not bool((length > CANCELLED * whole).all()):  # what is left is so small that rounding shows
            again, rest = self._split(rest)
            column, length = column + again, norm(rest[:, 0])
        length = torch.where((length <= floor) | (length <= relative * whole), 0.0, length)
        return self._with(ratio(rest[:, 0], length).unsqueeze(1)), column[:, 0], length

    def absorb_several(self, vectors: Tensor, least: float, factor: Numbers | None = None) -> tuple[Basis, Numbers, float] | None:
        """The basis with what is new of vectors (problems, count, size); the coefficients of these on it, (problems, filled,
        count); and the smallest share of a vector that is new, also to those before it.

        All at once, by the Cholesky factor of their inner products (Stathopoulos and Wu 2002), twice where much cancels. Only
        the first ones are taken where that share would be less than `least`, and what is left of a vector rounding; None for
        not even the first, or where they are dependent. `factor` is that of their inner products where it is known, for a basis
        that is empty.
        """
        column, rest = self._split(vectors)
        along, factor = _numbers(column), factor_of(rest, column) if factor is None else factor
        if factor is None:
            return None
        shares = shares_of(factor, along)
        share = float(least_of(shares, axis=None))
        if not share >= least * least:
            count = int((shares >= least * least).all(axis=0).argmin())
            if count == 0:
                return None
            along, factor, rest = along[:, :count], factor[:, :count, :count], rest[:, :count]
            share = float(shares[:, :count].min())
        new = _divided(rest, factor)
        if share < ONCE**2:
            column, rest = self._split(new)
            second = factor_of(rest)
            if second is None:
                return None
            new, along, factor = _divided(rest, second), along + factor @ _numbers(column), factor @ second
        return self._with(new), numpy.concatenate([along, factor], axis=2).mT, math.sqrt(share)

    def combine(self, coefficients: Tensor) -> Tensor:
        """The combination of the first vectors with coefficients (problems, at most count)."""
        start = 0
        result: Tensor | None = None
        for block in self._filled(coefficients.shape[1]):
            stop = start + block.shape[1]
            part = torch.bmm(coefficients[:, start:stop].to(block.dtype).unsqueeze(1), block).squeeze(1)
            result = part if result is None else result + part
            start = stop
        assert result is not None, "there is at least one vector"
        return result

    def _split(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """The coefficients of vectors (problems, count, size) on the basis, (problems, count, filled), and what is left."""
        blocks = self._filled(self.filled)
        if not blocks:
            return vectors[:, :, :0], vectors
        parts = [torch.bmm(vectors, block.mT) for block in blocks]  # row times block: seven times faster than block times column
        along = total(parts[0] if len(parts) == 1 else torch.cat(parts, dim=2))
        start = 0
        for block in blocks:
            stop = start + block.shape[1]
            vectors = torch.baddbmm(vectors, along[:, :, start:stop], block, alpha=-1)
            start = stop
        return along, vectors

    def _with(self, vectors: Tensor) -> Basis:
        """The basis with more vectors; the room that they are written to belongs to the newest basis."""
        blocks, count = self.blocks, vectors.shape[1]
        start = self._in_last(self.filled)
        fitting = min(blocks[-1].shape[1] - start, count)
        blocks[-1][:, start : start + fitting] = vectors[:, :fitting]
        if fitting < count:
            blocks = (*blocks, _room(vectors, count - fitting))
            blocks[-1][:, : count - fitting] = vectors[:, fitting:]
        return Basis(blocks, self.filled + count)

    def _in_last(self, index: int) -> int:
        """A place among all, as one in the last block."""
        for block in self.blocks[:-1]:
            index -= block.shape[1]
        return index

    def _filled(self, count: int) -> list[Tensor]:
        filled: list[Tensor] = []
        for block in self.blocks:
            if count > 0:
                filled.append(block[:, :count])
            count -= block.shape[1]
        return filled


def _room(like: Tensor, count: int) -> Tensor:
    """An empty block for at least so many vectors like those of (problems, some, size)."""
    problems, _, size = like.shape
    return like.new_empty(problems, max(BLOCK[0], count, min(BLOCK[1], ROOM // max(problems * size, 1))), size)


def _numbers(columns: Tensor) -> Numbers:
    found: Numbers = columns.double().cpu().numpy()
    return found


def factor_of(vectors: Tensor, besides: Tensor | None = None) -> Numbers | None:
    """L with L Lᵀ the inner products of vectors (problems, count, size) in float64; None where they are dependent.

    Where all are zero, and what was taken off them `besides` too, the problem is solved: any L will do.
    """
    double = vectors.double()
    gram = _numbers(total(torch.bmm(double, double.mT)))
    if not gram[:, 0, 0].all():
        something = gram.any(axis=(1, 2), keepdims=True)
        if besides is not None:
            something = something | _numbers(besides).any(axis=(1, 2), keepdims=True)
        gram = numpy.where(something, gram, numpy.eye(gram.shape[1]))
    try:
        factor: Numbers = numpy.linalg.cholesky(gram).astype(numpy.float64, copy=False)
        return factor
    except numpy.linalg.LinAlgError:
        return None


def shares_of(factor: Numbers, along: Numbers | None = None) -> Numbers:
    """The share of each vector that is new, also to those before it, squared, (problems, count): from the Cholesky factor of the
    inner products of what is new to a basis, and from the coefficients `along` that basis."""
    square = factor * factor
    whole = add(square, axis=2)
    if along is not None:
        whole = whole + add(along * along, axis=2)
    shares: Numbers = square.diagonal(axis1=1, axis2=2) / whole
    return shares


def _divided(vectors: Tensor, factor: Numbers) -> Tensor:
    """L⁻¹ times the vectors."""
    return torch.bmm(torch.from_numpy(numpy.linalg.inv(factor)).to(vectors), vectors)
