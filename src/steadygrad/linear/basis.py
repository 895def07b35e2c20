"""A growing orthonormal basis, for each row, in blocks: room as needed, and no copy when it grows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from steadygrad.state.rows import length as length_here
from steadygrad.state.rows import norm, over
from steadygrad.state.shards import columns_of_all, current, total

BLOCK = 8
"""Vectors a block: few enough to waste little, many enough for products that pay."""
CANCELLED = 0.5
"""A vector of which the basis takes more than this share is made orthogonal once more (Daniel, Gragg, Kaufman, Stewart 1976)."""


class Basis(NamedTuple):
    """Vectors of shape (problems, size), the first `filled` of what the blocks (problems, vectors, size) have room for."""

    blocks: tuple[Tensor, ...]
    filled: int

    @classmethod
    def of(cls, vectors: Tensor) -> Basis:
        """A basis that begins with orthonormal vectors (problems, count, size)."""
        return cls((vectors,), vectors.shape[1])

    @property
    def size(self) -> int:
        """How many numbers a vector has, on all ranks together."""
        return columns_of_all(self.blocks[0].shape[2])

    @property
    def last(self) -> Tensor:
        block = self.blocks[-1]
        return block[:, self.filled - 1 - (self._room() - block.shape[1])].contiguous()

    def append(self, vector: Tensor) -> Basis:
        """The basis with one more vector; the room it is written to belongs to the newest basis."""
        blocks, room = self.blocks, self._room()
        if self.filled == room:
            blocks = (*blocks, vector.new_empty(vector.shape[0], BLOCK, vector.shape[1]))
            room += BLOCK
        block = blocks[-1]
        block[:, self.filled - (room - block.shape[1])] = vector
        return Basis(blocks, self.filled + 1)

    def absorb(self, vector: Tensor, floor: Tensor | float = 0.0, relative: float = 0.0) -> tuple[Basis, Tensor, Tensor]:
        """The basis with the part of a vector that is new, normalised; its coefficients on the basis; the size of that part.

        A part no larger than `floor`, or than `relative` of the vector, is rounding: zero is appended for it.
        """
        column, whole = self._along_and_size(vector)
        vector = vector - self.combine(column)
        length = norm(vector)
        if bool((length < CANCELLED * whole).any()):  # what is left is so small that rounding shows
            again = self.along(vector)
            vector = vector - self.combine(again)
            column, length = column + again, norm(vector)
        length = torch.where((length <= floor) | (length <= relative * whole), 0.0, length)
        return self.append(over(vector, length)), column, length

    def along(self, vector: Tensor) -> Tensor:
        """The inner products with all vectors, (problems, count)."""
        return total(self._along_here(vector))

    def _along_and_size(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """The inner products with all vectors, and ‖vector‖: one exchange for both where the state is divided."""
        if current() is None:
            return self.along(vector), norm(vector)
        here = self._along_here(vector).double()
        both = total(torch.cat([here, length_here(vector).double().square()], dim=1))
        return both[:, :-1].to(vector.dtype), both[:, -1:].sqrt().to(vector.dtype)

    def _along_here(self, vector: Tensor) -> Tensor:
        """The inner products of what this rank holds."""
        row = vector.unsqueeze(1)  # row times block: seven times faster than block times column
        parts = [(row @ block.mT).squeeze(1) for block in self._filled(self.filled)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def combine(self, coefficients: Tensor) -> Tensor:
        """The combination of the first vectors with coefficients (problems, at most count)."""
        start = 0
        result: Tensor | None = None
        for block in self._filled(coefficients.shape[1]):
            stop = start + block.shape[1]
            part = (coefficients[:, start:stop].to(block.dtype).unsqueeze(1) @ block).squeeze(1)
            result = part if result is None else result + part
            start = stop
        assert result is not None, "there is at least one vector"
        return result

    def _room(self) -> int:
        return sum(block.shape[1] for block in self.blocks)

    def _filled(self, count: int) -> list[Tensor]:
        filled: list[Tensor] = []
        for block in self.blocks:
            if count > 0:
                filled.append(block[:, :count])
            count -= block.shape[1]
        return filled
