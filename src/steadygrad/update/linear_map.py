"""A linear map as solvers see it, and maps that are made from others."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Linear(Protocol):
    """What an adjoint solver needs of J: products with it and its transpose on matrices with a row a problem."""

    @property
    def products(self) -> int: ...
    def vjp(self, v: Tensor) -> Tensor: ...
    def jvp(self, v: Tensor) -> Tensor: ...
    def dense(self) -> Tensor: ...


def transposed(jacobian: Linear) -> Any:
    """The same linear map with vjp and jvp exchanged."""
    return _Transposed(jacobian)


class Derived:
    """A linear map made from another; what a subclass does not change is that of the other."""

    def __init__(self, of: Any) -> None:
        self.of = of

    @property
    def products(self) -> int:
        return self.of.products

    @property
    def precision(self) -> torch.dtype | None:
        return getattr(self.of, "precision", None)

    def vjp(self, v: Tensor) -> Tensor:
        return self.of.vjp(v)

    def jvp(self, v: Tensor) -> Tensor:
        return self.of.jvp(v)

    def dense(self) -> Tensor:
        return self.of.dense()

    def part(self, rows: Tensor) -> Any:
        """The map of some of the problems; None where the other cannot give it."""
        part: Any = getattr(self.of, "part", None)
        found = None if part is None else part(rows)
        return None if found is None else self.again(found, rows)

    def again(self, part: Any, rows: Tensor) -> Any:
        """The same made from the other of some of the problems."""
        return type(self)(part)


class _Transposed(Derived):
    def vjp(self, v: Tensor) -> Tensor:
        return self.of.jvp(v)

    def jvp(self, v: Tensor) -> Tensor:
        return self.of.vjp(v)

    def dense(self) -> Tensor:
        return self.of.dense().mT
