"""Several steps of F, or several products with Jᵀ, as one torch.compile graph; where F cannot be compiled, eagerly.

A call of a graph costs some 60 µs (guards and wrappers) whatever is in it, so single steps and single products stay eager:
graphs hold 10 or 30 of them (`CHUNKS`). How a number of steps is divided depends on that number alone, never on what ran
before, so that equal calls give equal bits.
"""

from __future__ import annotations

import functools
import itertools
import warnings
import weakref
from collections.abc import Callable, Hashable
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

from steadygrad.jacobian import Linear
from steadygrad.solution import SteadyStateWarning
from steadygrad.state import Layout, in_order
from steadygrad.update import Update, tensors_in

CHUNKS = (30, 10)
"""Steps a graph, longest first. Over the eager loop at 32×64 (30 + 30 steps): 5 a graph 0.5, 10 0.45, 30 0.4. Building takes
1 to 3 s for ten and 3 to 6 s for thirty, so there are two lengths, each built when first needed."""

MAX_LAYOUTS = 8
"""Shapes of the state (and of args) that one update is compiled for; each costs seconds, so that F on ever new shapes is
better left eager."""

MAX_BUILDS = 4
"""Times that one graph is built for the same shapes: train and eval mode, and two more. A Python number that changes with
every call (an annealed factor, a counter) is a constant to the compiler and would build a graph each time."""


class CompiledUpdate:
    """F with its steps in graphs: `advance` takes many, a call takes one, eagerly."""

    def __init__(self, update: Update) -> None:
        self.update = update
        self._program = _program_of(update)

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
            while steps:
                chunk = _chunk(steps)
                h, before = self._graph(h, chunk, damping) or self._eager(h, chunk, damping)
                steps -= chunk
        return h, before

    def _graph(self, flat: Tensor, steps: int, damping: float) -> tuple[Tensor, Tensor] | None:
        if steps == 1:
            return None
        layout = self.update.layout
        leaves = layout.split(flat.contiguous())  # a new stride would be a new graph
        found = self._program.run(_many_steps, self.update, (steps, damping), leaves)
        return None if found is None else (layout.flatten(found[0]), layout.flatten(found[1]))

    def _eager(self, h: Tensor, steps: int, damping: float) -> tuple[Tensor, Tensor]:
        before = h
        for _ in range(steps):
            before, h = h, _damped(self.update(h), h, damping)
        return h, before


class CompiledJacobian:
    """J at one state with its products in graphs: `series` takes many, everything else is that of `eager`, given at the
    same state. A graph linearises F anew: one evaluation of F more for 10 or 30 products, and nothing kept between them."""

    def __init__(self, update: Update, h: Tensor, eager: Linear) -> None:
        self.update = update
        self.eager = eager
        self.products = 0
        self._leaves = update.layout.split(h.detach().contiguous())
        self._program = _program_of(update)

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
            while steps:
                chunk = _chunk(steps)
                z, v = self._graph(z, v, chunk) or self._eager(z, v, chunk)
                steps -= chunk
        return z, v

    def _graph(self, z: Tensor, v: Tensor, steps: int) -> tuple[Tensor, Tensor] | None:
        if steps == 1:
            return None
        layout = self.update.layout
        terms, sums = layout.split(v.contiguous()), layout.split(z.contiguous())
        found = self._program.run(_many_products, self.update, (steps,), self._leaves, terms, sums)
        if found is None:
            return None
        self.products += steps
        return layout.flatten(found[0]), layout.flatten(found[1])

    def _eager(self, z: Tensor, v: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        for _ in range(steps):
            v = self.vjp(v)
            z = z + v
        return z, v


def _chunk(steps: int) -> int:
    """The longest chunk that fits, or a single eager step."""
    return next((chunk for chunk in CHUNKS if chunk <= steps), 1)


def _damped(image: Tensor, h: Tensor, damping: float) -> Tensor:
    return torch.lerp(image, h, damping) if damping else image


# The bodies of the graphs. They see the user's function and its args, not our Update, whose checks cannot be traced.


def _many_steps(
    function: Any, args: Any, layout: Layout, sizes: tuple[int, float], leaves: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    steps, damping = sizes
    before = leaves
    for _ in range(steps):
        image = in_order(layout.template, function(layout.nest(leaves), *args))
        before, leaves = leaves, [_damped(new, old, damping) for new, old in zip(image, leaves, strict=True)]
    return leaves, before


def _many_products(
    function: Any, args: Any, layout: Layout, sizes: tuple[int], leaves: list[Tensor], terms: list[Tensor], sums: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    def image(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(in_order(layout.template, function(layout.nest(leaves), *args)))

    _, pull = torch.func.vjp(image, *leaves)
    (steps,) = sizes
    for _ in range(steps):
        terms = list(pull(tuple(terms)))
        sums = [z + v for z, v in zip(sums, terms, strict=True)]
    return sums, terms


class _Graph:
    """One body compiled for one update and its shapes.

    It has a code object of its own: torch counts recompilations by code object, and all updates that share one would be
    lost to its limit together.
    """

    numbers = itertools.count()

    def __init__(self, body: Callable[..., Any]) -> None:
        code = body.__code__.replace(co_name=f"{body.__name__}_{next(self.numbers)}")
        function = FunctionType(code, body.__globals__)
        self.builds = 0
        self.call: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False, backend=self._build)

    def _build(self, module: Any, inputs: list[Any]) -> Callable[..., Any]:
        self.builds += 1
        return torch._dynamo.lookup_backend("inductor")(module, inputs)


class _Program:
    """The graphs of all updates with the same code, and why there are none, if so."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, _Graph] = {}
        self._layouts: set[Hashable] = set()
        self._eager = False
        self._told: set[str] = set()

    def run(self, body: Callable[..., Any], update: Update, sizes: tuple[Any, ...], *inputs: list[Tensor]) -> Any:
        """What the body returns, from a graph; None where there can be none, with a warning the first time."""
        if self._eager:
            return None
        if update._generator is not None and update._generator.random:
            return self._tell(update, "it draws random numbers, which must be the same in every step of a solve", _RANDOM)
        layout = update.layout
        shapes = (layout.shapes, layout.dtype, layout.device, *((arg.shape, arg.dtype) for arg in tensors_in(update.args)))
        if shapes not in self._layouts and len(self._layouts) == MAX_LAYOUTS:
            return self._tell(update, f"it was compiled for {MAX_LAYOUTS} different shapes already", _SHAPES)
        self._layouts.add(shapes)
        key = (body, sizes, shapes)
        graph = self._graphs.get(key) or self._graphs.setdefault(key, _Graph(body))
        try:
            found = graph.call(update.function, update.args, layout, sizes, *inputs)
        except _compiler_errors() as error:
            # If F itself is at fault, the eager steps that follow raise its own error.
            self._eager = True
            return self._tell(update, f"{type(error).__name__}: {_first_line(error)}", _UNTRACED)
        if graph.builds > MAX_BUILDS:
            self._eager = True
            self._tell(update, f"its graph was built {graph.builds} times for the same shapes", _REBUILT)
        return found

    def _tell(self, update: Update, why: str, advice: str) -> None:
        if advice not in self._told:
            self._told.add(advice)
            name = getattr(update.function, "__qualname__", type(update.function).__name__)
            warnings.warn(
                f"the steps of {name} run eagerly in spite of compile=True: {why}. {advice}", SteadyStateWarning, stacklevel=2
            )


_UNTRACED = (
    "Results are the same, without the speed. F must be traceable: no branches on values of tensors, no .item(), no calls "
    "into other libraries; compiling also needs a C++ compiler (g++). Or leave compile=False."
)
_RANDOM = "Draw outside of F and close over the draw, or call eval()."
_SHAPES = "Further shapes stay eager: pad to a few sizes, or leave compile=False."
_REBUILT = "Does F use a Python number that changes from call to call? Make it a tensor."


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


@functools.cache
def _compiler_errors() -> tuple[type[Exception], ...]:
    """What torch raises when it cannot compile; its own asserts and guards on values come as they are."""
    from torch._dynamo.exc import TorchDynamoException  # imported late: it takes a second
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return (TorchDynamoException, GuardOnDataDependentSymNode, AssertionError)


_DATA = (Tensor, int, float, str, bytes, type(None), tuple, list, dict, set, type, ModuleType)
_DEPTH = 3
"""Levels of functions within functions that are looked at: an update that wraps a bound method that holds a module."""

_programs: dict[Hashable, _Program] = {}
_structures: weakref.WeakKeyDictionary[torch.nn.Module, Hashable] = weakref.WeakKeyDictionary()


def _program_of(update: Update) -> _Program:
    return _programs.setdefault(_code_behind(update.function), _Program())


def _code_behind(held: Any, depth: int = _DEPTH) -> Hashable:
    """What two updates have in common if they may share graphs: their code, and that of the functions and modules which
    they hold. What else they hold (tensors, numbers) torch's guards compare at each call."""
    if isinstance(held, torch.nn.Module):
        if held not in _structures:  # by structure, not identity: a model made anew needs no new graph
            _structures[held] = (type(held), repr(held), tuple(p.shape for p in held.parameters()))
        return _structures[held]
    if depth == 0 or isinstance(held, _DATA):
        return None
    code = getattr(held, "__code__", type(held))
    return (code, *(found for item in _parts(held) if (found := _code_behind(item, depth - 1)) is not None))


def _parts(held: Any) -> tuple[Any, ...]:
    """What a callable holds: its closure and defaults, the object it is bound to, what it is partial of, its fields."""
    if isinstance(held, functools.partial):
        return (held.func, *held.args, *held.keywords.values())
    if isinstance(held, MethodType):
        return (held.__self__,)
    if isinstance(held, FunctionType):
        cells = [cell.cell_contents for cell in held.__closure__ or () if cell != CellType()]  # a cell can be empty
        return (*cells, *(held.__defaults__ or ()), *(held.__kwdefaults__ or {}).values())
    return tuple(getattr(held, "__dict__", {}).values())
