"""Several steps of F, or several products with Jᵀ, as one torch.compile graph; where F cannot be compiled, eagerly.

A call of a graph costs some 60 µs (guards and wrappers) whatever is in it, so single steps and single products stay eager:
a graph holds `CHUNK` of them. How a number of steps is divided depends on that number alone, never on what ran before, so
that equal calls give equal bits.
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
from steadygrad.state import Layout, State
from steadygrad.update import Update, tensors_in

CHUNK = 10
"""Steps a graph. 30 + 30 steps over the eager loop, at 32×64 and at 64×512: five a graph 0.5 and 1.0, ten 0.45 and 0.98, thirty
0.40 and 0.90. Building takes 2 s for ten and 5 s for thirty steps of tanh(h Wᵀ + x), and three times that for a GRU."""

BACKEND = "inductor"

MAX_LAYOUTS = 8
"""Shapes of the state (and of args) that one update is compiled for; each costs seconds, so that F on ever new shapes is
better left eager."""

MAX_BUILDS = 4
"""Times that one graph is built for the same shapes: train and eval mode, and two more. A Python number that changes with
every call (an annealed factor, a counter) is a constant to the compiler and would build a graph each time."""


class CompiledUpdate:
    """F with its steps in graphs: `advance` takes many, a call takes one, eagerly."""

    def __init__(self, update: Update, chunk: int = CHUNK) -> None:
        self.update = update
        self.chunk = chunk
        self._graphs = _Graphs(update)

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
        self._graphs = _Graphs(update)

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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own deprecated parts
            return torch._dynamo.lookup_backend(BACKEND)(module, inputs)


class _Program:
    """The graphs of all updates with the same code, and what was said about them."""

    def __init__(self) -> None:
        self.graphs: dict[Hashable, _Graph] = {}
        self.layouts: set[Hashable] = set()
        self.eager: set[Callable[..., Any]] = set()  # the bodies that are not compiled (any more)
        self.told: set[str] = set()

    def graph(self, body: Callable[..., Any], sizes: Hashable, shapes: Hashable) -> _Graph | None:
        """The graph for these shapes, made if need be; None when there are too many shapes."""
        if shapes not in self.layouts and len(self.layouts) == MAX_LAYOUTS:
            return None
        self.layouts.add(shapes)
        key = (body, sizes, shapes)
        if key not in self.graphs:
            self.graphs[key] = _Graph(body)
        return self.graphs[key]


class _Graphs:
    """The graphs of one update, which it shares with all updates of the same code."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self._program = _programs.setdefault(_code_behind(update.function), _Program())
        layout = update.layout
        given = [(arg.shape, arg.dtype) for arg in tensors_in(update.args)]
        self._shapes = (layout.shapes, layout.dtype, layout.device, *given)

    def run(self, body: Callable[..., Any], sizes: tuple[Any, ...], *inputs: list[Tensor]) -> Any:
        """What the body returns, from a graph; None where there can be none, with a warning the first time."""
        update, program = self._update, self._program
        if body in program.eager:
            return None
        if update._generator is not None and update._generator.random:
            return self._tell("it draws random numbers, which must be the same in every step of a solve", _RANDOM)
        graph = program.graph(body, sizes, self._shapes)
        if graph is None:
            return self._tell(f"it was compiled for {MAX_LAYOUTS} different shapes already", _SHAPES)
        hooks = torch._C._autograd._saved_tensors_hooks_is_enabled()
        try:
            found = graph.call(update.function, update.args, update.layout, sizes, *inputs)
        except _compiler_errors() as error:
            # If F itself is at fault, the eager steps that follow raise its own error.
            program.eager.add(body)
            if hooks:  # a failure inside torch.func.vjp can leave them disabled for everybody
                torch._C._autograd._saved_tensors_hooks_enable()
            return self._tell(_reason(error), _UNTRACED)
        if graph.builds > MAX_BUILDS:
            program.eager.add(body)
            self._tell(f"its graph was built {graph.builds} times for the same shapes", _REBUILT)
        return found

    def _tell(self, why: str, advice: str) -> None:
        if advice in self._program.told:
            return
        self._program.told.add(advice)
        function = self._update.function
        name = getattr(function, "__qualname__", type(function).__name__)
        message = f"the steps of {name} run eagerly in spite of compile=True: {why}. {advice}"
        warnings.warn(message, SteadyStateWarning, stacklevel=2)


_UNTRACED = (
    "Results are the same, without the speed. F must be traceable: no branches on values of tensors, no .item(), no calls "
    "into other libraries; compiling also needs a C++ compiler (g++). Or leave compile=False."
)
_RANDOM = "Draw outside of F and close over the draw, or call eval()."
_SHAPES = "Further shapes stay eager: pad to a few sizes, or leave compile=False."
_REBUILT = "Does F use a Python number that changes from call to call? Make it a tensor."


def _reason(error: BaseException) -> str:
    """The kind of error and the first two lines of torch's long message: what it met, and its explanation."""
    error = getattr(error, "inner_exception", error)
    lines = [line.strip(" .") for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:2]])[:300]


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
