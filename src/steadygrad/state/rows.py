"""Arithmetic on matrices with a row a problem: every coefficient is a column."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from steadygrad.state.shards import current, total


def dot(u: Tensor, v: Tensor) -> Tensor:
    """⟨u, v⟩ of each row, as a column; over all ranks where the state is divided."""
    return total((u * v).sum(dim=1, keepdim=True))


def dots(vectors: Sequence[Tensor], v: Tensor) -> list[Tensor]:
    """⟨u, v⟩ for each u of several, as columns: one exchange for all where the state is divided."""
    if current() is None or not vectors:
        return [dot(u, v) for u in vectors]
    return list(total(torch.cat([(u * v).sum(dim=1, keepdim=True) for u in vectors], dim=1)).split(1, dim=1))


def norm(u: Tensor) -> Tensor:
    """‖u‖ of each row, as a column; over all ranks where the state is divided."""
    if current() is None:
        return length(u)
    return total(length(u).double().square()).sqrt().to(u.dtype)


def length(u: Tensor) -> Tensor:
    """‖u‖ of each row, as a column, for vectors that every rank has in full: coefficients on a basis."""
    return torch.linalg.vector_norm(u, dim=1, keepdim=True)


def ratio(a: Tensor | float, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0: a row that is solved stays where it is."""
    return a / b.masked_fill(b == 0, torch.inf)
