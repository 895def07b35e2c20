"""Arithmetic on matrices with a row a problem: every coefficient is a column."""

from __future__ import annotations

import torch
from torch import Tensor


def dot(u: Tensor, v: Tensor) -> Tensor:
    """⟨u, v⟩ of each row, as a column."""
    return (u * v).sum(dim=1, keepdim=True)


def norm(u: Tensor) -> Tensor:
    """‖u‖ of each row, as a column."""
    return torch.linalg.vector_norm(u, dim=1, keepdim=True)


def over(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0: a row that is solved stays where it is."""
    return torch.where(b != 0, a / b, torch.zeros_like(a))
