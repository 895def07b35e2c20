"""torch.compile for updates: one set of graphs for all updates of the same code, a warning and None where there can be none."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

from steadygrad.failure import report_failure
from steadygrad.state.tree import tensors_in
from steadygrad.update import Update
from steadygrad.update.capture import CapturedCall, KeptParts, NotCompiledError, Trace, without_warnings

_autograd: Any = torch._C._autograd  # pyright: ignore[reportAttributeAccessIssue]

MAX_LAYOUTS = 8
"""Shapes of the state (and of args) that one update is compiled for; each costs seconds, so that F on ever new shapes is
better left eager."""

MAX_BUILDS = 4
"""Times that one graph is built for the same shapes: train and eval mode, and two more. A Python number that changes with
every call (an annealed factor, a counter) is a constant to the compiler and would build a graph each time."""


class _Program:
    """The graphs of all updates with the same code, and what was said about them."""

    def __init__(self) -> None:
        self.traces: dict[Hashable, Trace] = {}
        self.drew = False
        """Whether one of the updates was seen to draw random numbers."""
        self.eager: set[Callable[..., Any]] = set()  # the bodies that are not compiled (any more)
        self.rebuilt = False
        """Whether F was traced so often for the same shapes that it is not any more."""
        self.told: set[str] = set()

    def trace(self, shapes: Hashable) -> Trace | None:
        """The trace of F for these shapes, made if need be; None when there are too many shapes."""
        if shapes not in self.traces:
            if len(self.traces) == MAX_LAYOUTS:
                return None
            self.traces[shapes] = Trace()
        return self.traces[shapes]


class Graphs:
    """The graphs of one update, which it shares with all updates of the same code."""

    def __init__(self, update: Update) -> None:
        self._update = update
        if update.program is None:  # looked up once in a solve
            layout = update.layout
            given = [(arg.shape, arg.dtype) for arg in tensors_in(update.args)]
            program = _programs.setdefault(_code_behind(update.function), _Program())
            update.program = (program, (layout.shapes, layout.dtype, layout.device, *given))
        self._program: _Program = update.program[0]
        self._shapes: Hashable = update.program[1]

    def run(
        self, body: Callable[..., Any], sizes: tuple[Any, ...], *states: list[Tensor], kept: KeptParts | None = None
    ) -> list[Tensor] | None:
        """`body(F, sizes, *states)`, tensors, from a graph; None where there can be none, with a warning the first time.

        `states` are the tensors of one state each, of which the first is one at which F can be evaluated. In one solve F is
        what it was at the first of them. What that state alone tells is worked out once for all graphs with the same `kept`.
        """
        if not self.ready(body, states[0]):
            return None
        call = self._update.captured
        if kept is None:
            return self._compiled(body, lambda: call.run(body, sizes, *states))
        return self._compiled(body, lambda: call.run_from(kept, body, sizes, *states))

    @property
    def compared(self) -> set[Hashable]:
        """The bodies, with their sizes, of which it was seen that their graphs give what F gives."""
        return self._update.captured.captured.compared

    def refuse(self, body: Callable[..., Any]) -> None:
        """Take note that graphs of that body do not give what F gives, so that none is run any more."""
        self._program.eager.add(body)
        self._tell("a graph of them differs from what autograd gives", _OTHER, of="products with J of")

    def ready(self, body: Callable[..., Any], leaves: list[Tensor]) -> bool:
        """Whether there are graphs of that body, as far as can be told before one is built; `leaves` are those of a state."""
        update, program = self._update, self._program
        if body in program.eager or (program.rebuilt and update.captured is None):
            return False
        if update.captured is None:
            update.captured = self._compiled(body, lambda: self._captured(leaves))
        return update.captured is not None

    def _compiled(self, body: Callable[..., Any], call: Callable[[], Any]) -> Any:
        """What a call gives; None, with a warning, where torch cannot compile what it needs."""
        program = self._program
        hooks = _autograd._saved_tensors_hooks_is_enabled()
        try:
            return call()
        except _compiler_errors() as error:
            # If F itself is at fault, the eager steps that follow raise its own error.
            program.eager.add(body)
            if hooks:  # a failure inside torch.func.vjp can leave them disabled for everybody
                _autograd._saved_tensors_hooks_enable()
            return self._tell(_reason(error), _UNTRACED)

    def _captured(self, leaves: list[Tensor]) -> CapturedCall | None:
        """F with what it closes over at present.

        What torch traced is a proof of what F returns and that it draws nothing, since its guards compare what it was traced
        with: F is called eagerly, once, where it has just been traced.
        """
        update, program = self._update, self._program
        trace = program.trace(self._shapes)
        if trace is None:
            return self._tell(f"it was compiled for {MAX_LAYOUTS} different shapes already", _SHAPES)
        builds, layout = trace.builds, update.layout
        leaves = [leaf.view(shape) for leaf, shape in zip(leaves, layout.shapes, strict=True)]
        if (not builds or program.drew) and self._seen_to_draw(leaves):
            return self._tell(_DRAWS, _RANDOM)
        with update.under_its_autocast(), nullcontext() if builds else without_warnings():
            found: Any = trace.call(update.function, update.args, None if layout.template is None else layout, leaves)
        if trace.builds > builds:
            if self._seen_to_draw(leaves):  # in train mode, say, after eval mode
                return self._tell(_DRAWS, _RANDOM)
            if trace.builds > MAX_BUILDS:
                program.rebuilt = True
                self._tell(f"its graph was built {trace.builds} times for the same shapes", _REBUILT)
        captured, inputs = found[0]
        update.proven()
        return CapturedCall(captured, inputs, leaves, update.under_its_autocast)

    def _seen_to_draw(self, leaves: list[Tensor]) -> bool:
        """Whether F draws random numbers, after an eager call of it, which also checks what it returns."""
        update = self._update
        if not update.called:
            with torch.no_grad():
                update(update.layout.flatten(leaves))
        self._program.drew |= update.draws
        return update.draws

    def _tell(self, why: str, advice: str, of: str = "steps of") -> None:
        if advice in self._program.told:
            return
        self._program.told.add(advice)
        function = self._update.function
        name = getattr(function, "__qualname__", type(function).__name__)
        message = f"the {of} {name} run eagerly in spite of compile=True: {why}. {advice}"
        report_failure(message, "warn")


_UNTRACED = (
    "Results are the same, without the speed. F must be traceable: no branches on values of tensors, no .item(), no calls "
    "into other libraries; compiling also needs a C++ compiler (g++). Or leave compile=False."
)
_OTHER = (
    "Results are right, without the speed. F is traced without gradients, so that what only concerns these is not in a graph: "
    "torch.no_grad(), the backward of a torch.autograd.Function, hooks. Use detach() in place of no_grad(), or compile=False."
)
_DRAWS = "it draws random numbers, which must be the same in every step of a solve"
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

    return (TorchDynamoException, GuardOnDataDependentSymNode, AssertionError, NotCompiledError)


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
