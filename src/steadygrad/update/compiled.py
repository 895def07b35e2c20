"""Several steps of F, or several products with Jᵀ, as one torch.compile graph; where F cannot be compiled, eagerly.

The first graph of a solve costs some 60 to 100 µs (torch's guards) whatever is in it, each further one 20, so that single steps
and single products stay eager.
How a number of steps is divided depends on that number alone, never on what ran before, so that equal calls give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from steadygrad.state import Layout
from steadygrad.update import Update
from steadygrad.update.capture import KeptParts
from steadygrad.update.jacobian import Jacobian
from steadygrad.update.linear_map import Derived
from steadygrad.update.program import Graphs
from steadygrad.update.update import damped

SMALL = (32, 16)
"""Steps a graph where a tolerance is waited for, the longest first. At 32×64 a graph of 16 steps takes as long as five eager
ones, so that a few steps beyond the tolerance cost less than one look more."""
LARGE = (8,)
"""The same for large states, which are looked at every eight steps or so: no step is taken in vain."""
COUNTED = range(25, 41)
"""Steps a graph where a number of steps was asked for that is larger than these: of these, what leaves the smallest rest."""


def graphs_for(count: int | None, large: bool) -> tuple[int, ...]:
    """Steps a graph: as many as were asked for, or a large part of that; without a count, what suits looks at the state.

    >>> graphs_for(30, False), graphs_for(100, False), graphs_for(None, False)
    ((30,), (25,), (32, 16))
    """
    if count is None:
        return LARGE if large else SMALL
    if count < COUNTED.stop:
        return (max(count, 1),)
    return (max(COUNTED, key=lambda steps: (-(count % steps), steps)),)


class CompiledUpdate:
    """F with its steps in graphs: `advance` takes many, a call takes one, eagerly."""

    def __init__(self, update: Update, chunks: tuple[int, ...] = SMALL) -> None:
        self.update = update
        self.chunks = chunks
        self.at_once = chunks[-1]
        self.norms: Tensor | None = None
        """After an `advance` that ended with a graph: the lengths of its first move and of where that led to, of the last move
        but one, and of the last, where the state is one problem of one tensor."""
        self._graphs = Graphs(update)

    def __call__(self, flat: Tensor) -> Tensor:
        return self.update(flat)

    def ready(self, flat: Tensor) -> bool:
        """Whether F can be traced at such a state, as far as can be told before a graph is built."""
        return self._graphs.ready(_many_steps, _given(self.update.layout, flat))

    def part(self, rows: Tensor, value: Tensor) -> Update | None:
        """The update of some of the problems, eagerly: each number of them would be a graph of its own."""
        return self.update.part(rows, value)

    def advance(self, flat: Tensor, steps: int, damping: float = 0.0) -> list[Tensor]:
        """`steps` times h ← (1 − d)·F(h) + d·h, without recording gradients: the last states, newest first, three if there are
        so many.

        Equal to the eager steps to rounding. Full chunks are graphs, the rest is eager.
        """
        if steps < 1:
            raise ValueError(f"steps must be at least 1; got {steps}.")
        with torch.no_grad():
            newest = [flat.detach()]
            for chunk in divided(steps, self.chunks):
                taken = self._graph(newest[0], chunk, damping) if chunk in self.chunks else None
                if taken is None:
                    self.norms, taken = None, self.update.advance(newest[0], chunk, damping)
                newest = taken if len(taken) > 2 else [*taken, *newest[1:2]]
        return newest

    def _graph(self, flat: Tensor, steps: int, damping: float) -> list[Tensor] | None:
        layout = self.update.layout
        found = self._graphs.run(_many_steps, (steps, damping, _rows(layout)), _given(layout, flat))
        if found is None:
            return None
        newest, self.norms = _taken(layout, found)
        return newest if steps > 2 else [*newest, flat]


class CompiledJacobian(Derived):
    """J at one state with its products in graphs: `add_terms` takes many, everything else is that of the eager one.

    Graphs linearise F anew, which is little beside many products, and nothing is kept between them. With `often`, for graphs of
    few products, they are in two parts, so that F is linearised once for all of them.
    """

    def __init__(self, eager: Jacobian, chunks: tuple[int, ...] = SMALL, often: bool = False) -> None:
        super().__init__(eager)
        self.chunks = chunks
        self.at_once = chunks[-1]
        self.norms: Tensor | None = None
        """After an `add_terms` that ended with a graph: ‖v₋₁‖ and ‖v‖ of its last terms, where the state is one problem of one
        tensor."""
        self._leaves = _given(eager.layout, eager.h)
        self._kept: KeptParts | None = {} if often else None
        self._graphs = Graphs(eager.update)
        if eager.update.captured is not None:
            eager.update.captured.check()

    @property
    def ready(self) -> bool:
        """Whether F can be traced, as far as can be told before a graph is built."""
        return self._graphs.ready(_many_products, self._leaves)

    def again(self, part: Jacobian, rows: Tensor) -> Jacobian:
        """J of some of the problems, eagerly: each number of them would be a graph of its own."""
        return part

    def add_terms(self, z: Tensor, v: Tensor, steps: int, keep: int = 1) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
        """Many terms of the Neumann series: z + Σ_{k<steps} (Jᵀ)ᵏ v, and the next term (Jᵀ)^steps v; and the last `keep` terms
        that were multiplied, with their products.

        The terms are added one by one in their order, as the eager loop does; equal to it to rounding.
        """
        if steps < 1:
            raise ValueError(f"steps must be at least 1; got {steps}.")
        pairs: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            z, v = z.detach(), v.detach()
            for chunk in divided(steps, self.chunks):
                taken = self._graph(z, v, chunk, keep) if chunk in self.chunks else None
                if taken is None:
                    self.norms, taken = None, self.of.add_terms(z, v, chunk, keep)
                z, v, last = taken
                pairs = [*pairs, *last][-keep:] if keep else []
        return z, v, pairs

    def _graph(self, z: Tensor, v: Tensor, steps: int, keep: int) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]] | None:
        layout = self.of.layout
        sizes = (steps, min(keep, steps), _rows(layout))
        found = self._graphs.run(_many_products, sizes, self._leaves, _given(layout, v), _given(layout, z), kept=self._kept)
        if found is None:
            return None
        (after, *last), self.norms = _taken(layout, found)
        if (_many_products, sizes) not in self._graphs.compared:
            eager = self.of.add_terms(z, v, steps, 1)[0]
            self.of.spend(-steps)  # they are those of the graph
            if not _alike(after, eager, self.of.precision):
                self._graphs.refuse(_many_products)
                return None
            if not _alike(z + v, eager, self.of.precision):  # where J is zero, any graph is right
                self._graphs.compared.add((_many_products, sizes))
        self.of.spend(steps)
        if keep >= steps:
            last = [v, *last]
        return after, last[-1], list(pairwise(last))


def _alike(z: Tensor, eager: Tensor, precision: torch.dtype) -> bool:
    """Whether a new graph gave what eager products give, to half of the digits: F may have derivatives that were not traced."""
    close = bool((z - eager).norm() <= torch.finfo(precision).eps ** 0.5 * eager.norm())
    return close or not bool(eager.isfinite().all())


def _rows(layout: Layout) -> int:
    """The problems where a graph may return matrices, which are views of the only tensor; 0 where it returns tensors."""
    return layout.problems if layout.viewable else 0


def _given(layout: Layout, flat: Tensor) -> list[Tensor]:
    """A flat state as a graph takes it. Contiguous: another stride would be another graph."""
    return [flat.contiguous()] if layout.viewable else layout.split(flat.contiguous())


def _taken(layout: Layout, found: Sequence[Tensor]) -> tuple[list[Tensor], Tensor | None]:
    """The states that a graph returned, in flat form, and the norms that it measured."""
    if layout.viewable:
        return (list(found[:-1]), found[-1]) if layout.problems == 1 else (list(found), None)
    leaves = len(layout.sizes)
    return [layout.flatten(found[i : i + leaves]) for i in range(0, len(found), leaves)], None


def divided(steps: int, chunks: tuple[int, ...]) -> list[int]:
    """A number of steps as a sum of chunks, the longest first, and a rest: by that number alone.

    >>> divided(73, (30, 10))
    [30, 30, 10, 3]
    """
    parts: list[int] = []
    for chunk in chunks:
        parts += [chunk] * (steps // chunk)
        steps %= chunk
    return [*parts, steps] if steps else parts


# The bodies of the graphs. Each returns tensors in a row, leaf by leaf; `image` is F on the tensors of a state.


def _many_steps(image: Callable[..., Any], sizes: tuple[int, float, int], leaves: list[Tensor]) -> list[Tensor]:
    """The last three states, newest first, of those made here; of one problem, the norms of the first and the last two moves."""
    steps, damping, rows = sizes
    newest = [leaves]
    first = leaves
    for step in range(steps):
        newest = [[damped(new, old, damping) for new, old in zip(image(*newest[0]), newest[0], strict=True)], *newest[:2]]
        first = newest[0] if step == 0 else first
    found = _flat(newest[: min(steps, 3)], rows)
    if rows == 1:
        (h,), (before,), (earlier,) = newest if steps > 1 else [*newest, newest[-1]]
        found.append(_norms(first[0] - leaves[0], first[0], before - earlier, before, h - before, h))
    return found


def _many_products(
    image: Callable[..., Any], sizes: tuple[int, int, int], leaves: list[Tensor], terms: list[Tensor], sums: list[Tensor]
) -> list[Tensor]:
    """The sum, the last terms of those computed here, the newest last; of one problem, the norms of the last two."""
    pull: Callable[..., Any] = torch.func.vjp(lambda *leaves: tuple(image(*leaves)), *leaves)[1]
    steps, keep, rows = sizes
    last = [terms]
    for _ in range(steps):
        sums = [z + v for z, v in zip(sums, last[-1], strict=True)]
        last = [*last[-keep - 1 :], list(pull(tuple(last[-1])))]
    found = _flat([sums, *last[max(-keep - 1, -steps) :]], rows)
    return [*found, _norms(last[-2][0], last[-1][0])] if rows == 1 else found


def _flat(states: list[list[Tensor]], rows: int) -> list[Tensor]:
    """The tensors of all states; as matrices if there are rows."""
    return [leaf.reshape(rows, -1) if rows else leaf for leaves in states for leaf in leaves]


def _norms(*vectors: Tensor) -> Tensor:
    """In float64: the squares of a float32 are within its range. They are summed as the compiler likes, which is to rounding."""
    return torch.stack([vector.double().square().sum().sqrt() for vector in vectors])
