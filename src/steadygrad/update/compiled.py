"""Several steps of F, or several products with Jᵀ, as one torch.compile graph; where F cannot be compiled, eagerly.

A call of a graph costs some 60 to 100 µs (guards and wrappers) whatever is in it, so single steps and single products stay eager:
a graph holds ten or thirty of them. How a number of steps is divided depends on that number alone, never on what ran before, so
that equal calls give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from steadygrad.state import Layout, State
from steadygrad.update import Update
from steadygrad.update.jacobian import Derived, Jacobian
from steadygrad.update.program import Graphs

CHUNKS = (30, 10)
"""Steps a graph, the longest first. 30 + 30 steps and the parameters' gradient over the eager loop (thread time on a busy
machine), at 32×64 and at 64×512: ten a graph 0.79 and 1.03, thirty 0.59 and 0.96; over a loop with a norm a step 0.59 and
0.99, 0.43 and 0.91. Building the graphs takes 2 to 5 s for ten and 3 to 10 s for thirty steps of tanh(h Wᵀ + x)."""


class CompiledUpdate:
    """F with its steps in graphs: `advance` takes many, a call takes one, eagerly."""

    leap = CHUNKS[-1]

    def __init__(self, update: Update, chunks: tuple[int, ...] = CHUNKS) -> None:
        self.update = update
        self.chunks = chunks
        self._graphs = Graphs(update)

    def __call__(self, flat: Tensor) -> Tensor:
        return self.update(flat)

    def part(self, rows: Tensor, value: Tensor) -> Update | None:
        """The update of some of the problems, eagerly: each number of them would be a graph of its own."""
        return self.update.part(rows, value)

    def advance(self, flat: Tensor, steps: int, damping: float = 0.0) -> list[Tensor]:
        """`steps` times h ← (1 − d)·F(h) + d·h, without recording gradients: the last state and the one before it.

        Equal to the eager steps to rounding. Full chunks are graphs, the rest is eager; the very first call of an update
        evaluates F once more, eagerly, which validates what it returns and shows whether it draws random numbers.
        """
        if steps < 1:
            raise ValueError(f"steps must be at least 1; got {steps}.")
        with torch.no_grad():
            if not self.update.called:
                self.update(flat)
            before = h = flat.detach()
            for chunk in divided(steps, self.chunks):
                taken = self._graph(h, chunk, damping) if chunk in self.chunks else None
                h, before = self.update.advance(h, chunk, damping)[:2] if taken is None else taken
        return [h, before]

    def _graph(self, flat: Tensor, steps: int, damping: float) -> tuple[Tensor, Tensor] | None:
        layout = self.update.layout
        leaves = layout.split(flat.contiguous())  # a new stride would be a new graph
        found = self._graphs.run(_many_steps, (steps, damping), leaves)
        return None if found is None else (layout.flatten(found[0]), layout.flatten(found[1]))


class CompiledJacobian(Derived):
    """J at one state with its products in graphs: `add_terms` takes many, everything else is that of the eager one.

    A graph linearises F anew: one evaluation of F more for a chunk of products, and nothing kept between them.
    """

    leap = CHUNKS[-1]

    def __init__(self, eager: Jacobian, chunks: tuple[int, ...] = CHUNKS) -> None:
        super().__init__(eager)
        self.chunks = chunks
        self._leaves = eager.layout.split(eager.h.contiguous())
        self._graphs = Graphs(eager.update)

    def again(self, part: Jacobian, rows: Tensor) -> Jacobian:
        """J of some of the problems, eagerly: each number of them would be a graph of its own."""
        return part

    def add_terms(self, z: Tensor, v: Tensor, steps: int, keep: int = 1) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
        """Many terms of the Neumann series: z + Σ_{k<steps} (Jᵀ)ᵏ v, and the next term (Jᵀ)^steps v; and what was added in all,
        with its product.

        The terms are added one by one in their order, as the eager loop does; equal to it to rounding. At most `keep` pairs are
        asked for; this one is all that a graph hands out.
        """
        if steps < 1:
            raise ValueError(f"steps must be at least 1; got {steps}.")
        with torch.no_grad():
            before, first = z, v
            z, v = z.detach(), v.detach()
            for chunk in divided(steps, self.chunks):
                taken = self._graph(z, v, chunk) if chunk in self.chunks else None
                z, v = self.of.add_terms(z, v, chunk, 0)[:2] if taken is None else taken
            added = z - before  # I − Jᵀ takes it to what the residual has lost
        return z, v, [(added, added - first + v)]

    def _graph(self, z: Tensor, v: Tensor, steps: int) -> tuple[Tensor, Tensor] | None:
        layout = self.of.layout
        terms, sums = layout.split(v.contiguous()), layout.split(z.contiguous())
        found = self._graphs.run(_many_products, (steps,), self._leaves, terms, sums)
        if found is None:
            return None
        self.of.spend(steps)
        return layout.flatten(found[0]), layout.flatten(found[1])


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


def _damped(image: Tensor, h: Tensor, damping: float) -> Tensor:
    return torch.lerp(image, h, damping) if damping else image


# The bodies of the graphs. They see the user's function and its args, not our Update, whose checks cannot be traced.


def _many_steps(
    function: Any, args: Any, layout: Layout, sizes: tuple[int, float], leaves: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    steps, damping = sizes
    before = leaves
    for _ in range(steps):
        image = _in_dtype(_in_order(layout.template, function(layout.nest(leaves), *args)), layout.dtype)
        before, leaves = leaves, [_damped(new, old, damping) for new, old in zip(image, leaves, strict=True)]
    return leaves, before


def _many_products(
    function: Any, args: Any, layout: Layout, sizes: tuple[int], leaves: list[Tensor], terms: list[Tensor], sums: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    def image(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(_in_dtype(_in_order(layout.template, function(layout.nest(leaves), *args)), layout.dtype))

    pull: Callable[..., Any] = torch.func.vjp(image, *leaves)[1]
    (steps,) = sizes
    for _ in range(steps):
        sums = [z + v for z, v in zip(sums, terms, strict=True)]
        terms = list(pull(tuple(terms)))
    return sums, terms


def _in_dtype(leaves: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The leaves in the dtype of the state: under autocast F returns another."""
    return [leaf.to(dtype) for leaf in leaves]


def _in_order(template: State, state: State) -> list[Tensor]:
    """`state.in_order` in words that torch can trace (a cast of a range it cannot)."""
    if template is None:
        return [state]
    if isinstance(template, dict):
        return [leaf for key in template for leaf in _in_order(template[key], state[key])]
    return [leaf for part, item in zip(template, state, strict=True) for leaf in _in_order(part, item)]
