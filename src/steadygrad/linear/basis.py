"""A growing orthonormal basis, for each row, in blocks: room as needed, and no copy when it grows."""

from __future__ import annotations

import torch
from torch import Tensor

from steadygrad.linear.rows import norm, over

BLOCK = 8
"""Vectors a block: few enough to waste little, many enough for products that pay."""


class Basis:
    """Vectors of shape (problems, size), appended one by one."""

    def __init__(self, first: Tensor) -> None:
        """Start with vectors (problems, count, size)."""
        self.count = first.shape[1]
        self._blocks = [first]
        self._room = self.count

    @property
    def size(self) -> int:
        return self._blocks[0].shape[2]

    @property
    def last(self) -> Tensor:
        block = self._blocks[-1]
        return block[:, self.count - 1 - (self._room - block.shape[1])].contiguous()

    def append(self, vector: Tensor) -> None:
        if self.count == self._room:
            self._blocks.append(vector.new_empty(vector.shape[0], BLOCK, vector.shape[1]))
            self._room += BLOCK
        block = self._blocks[-1]
        block[:, self.count - (self._room - block.shape[1])] = vector
        self.count += 1

    def absorb(self, vector: Tensor, floor: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """Append the part of a vector that is new, normalised; return its coefficients on the basis and the size of that part.

        A part no larger than `floor` is rounding: zero is appended for it.
        """
        column = self.along(vector)
        vector = vector - self.combine(column)
        again = self.along(vector)  # twice is enough to stay orthogonal
        vector = vector - self.combine(again)
        length = norm(vector)
        length = torch.where(length <= floor, 0.0, length)
        self.append(over(vector, length))
        return column + again, length

    def along(self, vector: Tensor) -> Tensor:
        """The inner products with all vectors, (problems, count)."""
        parts = [(block @ vector.unsqueeze(2)).squeeze(2) for block in self._filled(self.count)]
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

    def _filled(self, count: int) -> list[Tensor]:
        filled: list[Tensor] = []
        for block in self._blocks:
            if count > 0:
                filled.append(block[:, :count])
            count -= block.shape[1]
        return filled
