"""Several right-hand sides at once: the same J, as many times as there are of them, each with its own stop."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

import numpy
import torch
from torch import Tensor

from steadygrad.gradient.adjoint import Adjoint, AdjointStart
from steadygrad.state import Layout
from steadygrad.update.jacobian import Jacobian, Result
from steadygrad.update.levels import functorch


class Several(Jacobian):
    """J of one state repeated: a matrix of `copies` times its rows, whose products are one product each by vmap.

    Where an operation of F has no batching rule (sparse products) they are taken one by one.
    """

    at_once = 0

    def __init__(self, one: Jacobian, copies: int) -> None:
        # Nothing is linearised anew: what the solvers ask for is asked of the one.
        self._one = one
        self.copies = copies
        self.update = one.update
        self.layout = repeated(one.layout, copies)
        self.h = one.h.repeat(copies, 1)
        self.batched = True

    @property
    def one(self) -> Jacobian:
        return self._one

    @property
    def products(self) -> int:
        return self._one.products

    @property
    def structurally_zero(self) -> bool:
        return self._one.structurally_zero

    def gap(self) -> Tensor:
        return self._one.gap().repeat(self.copies, 1)

    def part(self, rows: Tensor) -> Jacobian | None:
        return None

    def walking(self, call: Callable[[], Result]) -> Result:
        return call()  # products are taken under vmap

    def vjp(self, v: Tensor) -> Tensor:
        return self._each(self._one.vjp, v)

    def jvp(self, v: Tensor) -> Tensor:
        self._one.transpose()  # once, outside of vmap
        return self._each(self._one.jvp, v)

    def dense(self) -> Tensor:
        return self._one.dense().repeat(self.copies, 1, 1)

    def _each(self, product: Callable[[Tensor], Tensor], v: Tensor) -> Tensor:
        vectors = v.reshape(self.copies, *self._one.h.shape)
        if self.batched:
            try:
                with _no_slow_rules():
                    return torch.vmap(product)(vectors).reshape(v.shape)
            except (RuntimeError, NotImplementedError):  # whatever else is wrong shows again below
                self.batched = False
        return torch.cat([product(vector) for vector in vectors])


@contextmanager
def _no_slow_rules() -> Generator[None]:
    """A context in which torch refuses what it has no batching rule for, instead of a loop of its own with a warning."""
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        functorch._set_vmap_fallback_enabled(before)


def repeated(layout: Layout, copies: int) -> Layout:
    """The layout of a state with one more batch dimension in front."""
    shapes = tuple(torch.Size([copies, *shape]) for shape in layout.shapes)
    return replace(layout, shapes=shapes, batch=torch.Size([copies, *layout.batch]))


def several_times(adjoint: Adjoint, copies: int) -> Adjoint:
    """The adjoint equation for that many cotangents at once, with the same record."""
    search, sizes = adjoint.search, adjoint.sizes
    return replace(
        adjoint,
        jacobian=Several(adjoint.jacobian, copies),
        start=AdjointStart(None, adjoint.start.uniform, adjoint.start.seed),
        compile=False,
        search=replace(search, batch=(copies, *search.batch), rows=None),
        sizes=None if sizes is None else numpy.tile(sizes, (copies, 1)),
    )
