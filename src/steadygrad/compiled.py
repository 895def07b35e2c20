"""Several steps of F, or several products with Jᵀ, as one torch.compile graph; where F cannot be compiled, eagerly.

A call of a graph costs some 60 to 100 µs (guards and wrappers) whatever is in it, so single steps and single products stay eager:
a graph holds `CHUNK` of them. How a number of steps is divided depends on that number alone, never on what ran before, so
that equal calls give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from steadygrad.jacobian import Linear
from steadygrad.program import Graphs
from steadygrad.state import Layout, State
from steadygrad.update import Update

CHUNK = 10
"""Steps a graph. 30 + 30 steps and the parameters' gradient over the eager loop (thread time on a busy machine), at 32×64 and
at 64×512: ten a graph 0.79 and 1.03, thirty 0.59 and 0.96; over a loop with a norm a step 0.59 and 0.99, 0.43 and 0.91.
Building both graphs takes 2 to 5 s for ten and 3 to 10 s for thirty steps of tanh(h Wᵀ + x), and a minute for thirty of a
GRU on a busy machine; hence ten, and thirty for those who ask."""


class CompiledUpdate:
    """F with its steps in graphs: `advance` takes many, a call takes one, eagerly."""

    def __init__(self, update: Update, chunk: int = CHUNK) -> None:
        self.update = update
        self.chunk = chunk
        self._graphs = Graphs(update)

    def __call__(self, flat: Tensor) -> Tensor:
        return self.update(flat)

    def advance(self, flat: Tensor, steps: int, damping: float = 0.0) -> tuple[Tensor, Tensor]:
        """`steps` times h ← (1 − d)·F(h) + d·h, without recording gradients: the last state and the one before it.

        Equal to the eager steps to rounding. Full chunks are graphs, the rest is eager; the very first call of an update
        evaluates F once more, eagerly, which validates what it returns and shows whether it draws random numbers.
        """
        if steps < 1:
            raise ValueError(f"steps must be at least 1; got {steps}.")
        with torch.no_grad():
            if self.update._generator is None:
                self.update(flat)
            before = h = flat.detach()
            for _ in range(steps // self.chunk):
                h, before = self._graph(h, self.chunk, damping) or self._eager(h, self.chunk, damping)
            if rest := steps % self.chunk:
                h, before = self._eager(h, rest, damping)
        return h, before

    def _graph(self, flat: Tensor, steps: int, damping: float) -> tuple[Tensor, Tensor] | None:
        layout = self.update.layout
        leaves = layout.split(flat.contiguous())  # a new stride would be a new graph
        found = self._graphs.run(_many_steps, (steps, damping), leaves)
        return None if found is None else (layout.flatten(found[0]), layout.flatten(found[1]))

    def _eager(self, h: Tensor, steps: int, damping: float) -> tuple[Tensor, Tensor]:
        before = h
        for _ in range(steps):
            before, h = h, _damped(self.update(h), h, damping)
        return h, before


class CompiledJacobian:
    """J at one state with its products in graphs: `series` takes many, everything else is that of `eager`, given at the
    same state. A graph linearises F anew: one evaluation of F more for `chunk` products, and nothing kept between them."""

    def __init__(self, update: Update, h: Tensor, eager: Linear, chunk: int = CHUNK) -> None:
        self.update = update
        self.chunk = chunk
        self.eager = eager
        self.products = 0
        self._leaves = update.layout.split(h.detach().contiguous())
        self._graphs = Graphs(update)

    def vjp(self, v: Tensor) -> Tensor:
        """Jᵀ v, eagerly."""
        self.products += 1
        return self.eager.vjp(v)

    def jvp(self, v: Tensor) -> Tensor:
        """J v, eagerly."""
        self.products += 1
        return self.eager.jvp(v)

    def dense(self) -> Tensor:
        """J as matrices (problems, size, size), eagerly: one product a column."""
        self.products += sum(self.update.layout.sizes)
        return self.eager.dense()

    def series(self, v: Tensor, steps: int, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Many terms of the Neumann series: start + Σ_{k=1..steps} (Jᵀ)ᵏ v, and the last term (Jᵀ)^steps v.

        The terms are added one by one in their order, as the eager loop does; equal to it to rounding.
        """
        if steps < 1:
            raise ValueError(f"steps must be at least 1; got {steps}.")
        with torch.no_grad():
            v = v.detach()
            z = torch.zeros_like(v) if start is None else start.detach()
            for _ in range(steps // self.chunk):
                z, v = self._graph(z, v, self.chunk) or self._eager(z, v, self.chunk)
            return self._eager(z, v, steps % self.chunk)

    def _graph(self, z: Tensor, v: Tensor, steps: int) -> tuple[Tensor, Tensor] | None:
        layout = self.update.layout
        terms, sums = layout.split(v.contiguous()), layout.split(z.contiguous())
        found = self._graphs.run(_many_products, (steps,), self._leaves, terms, sums)
        if found is None:
            return None
        self.products += steps
        return layout.flatten(found[0]), layout.flatten(found[1])

    def _eager(self, z: Tensor, v: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        for _ in range(steps):
            v = self.vjp(v)
            z = z + v
        return z, v


def _damped(image: Tensor, h: Tensor, damping: float) -> Tensor:
    return torch.lerp(image, h, damping) if damping else image


# The bodies of the graphs. They see the user's function and its args, not our Update, whose checks cannot be traced.


def _many_steps(
    function: Any, args: Any, layout: Layout, sizes: tuple[int, float], leaves: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    steps, damping = sizes
    before = leaves
    for _ in range(steps):
        image = _in_order(layout.template, function(layout.nest(leaves), *args))
        before, leaves = leaves, [_damped(new, old, damping) for new, old in zip(image, leaves, strict=True)]
    return leaves, before


def _many_products(
    function: Any, args: Any, layout: Layout, sizes: tuple[int], leaves: list[Tensor], terms: list[Tensor], sums: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    def image(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(_in_order(layout.template, function(layout.nest(leaves), *args)))

    pull: Callable[..., Any] = torch.func.vjp(image, *leaves)[1]
    (steps,) = sizes
    for _ in range(steps):
        terms = list(pull(tuple(terms)))
        sums = [z + v for z, v in zip(sums, terms, strict=True)]
    return sums, terms


def _in_order(template: State, state: State) -> list[Tensor]:
    """`state.in_order` in words that torch can trace (a cast of a range it cannot)."""
    if template is None:
        return [state]
    if isinstance(template, dict):
        return [leaf for key in template for leaf in _in_order(template[key], state[key])]
    return [leaf for part, item in zip(template, state, strict=True) for leaf in _in_order(part, item)]
