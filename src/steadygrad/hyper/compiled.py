"""Training steps as compiled graphs, where nothing is differentiated through them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from steadygrad.solution import SteadyStateWarning


class Compiled:
    """A function as one graph of torch.compile, from its second call on; eager, with a warning, where that cannot be had.

    The first call runs as it is: what a step looks at once only is then behind it, and the graph is traced without. Each has a
    code object of its own, since torch counts recompilations by code and runs the ninth of one eagerly without a word. Shapes
    are fixed: batches of another size make another graph. Not differentiable twice, so not for steps with a graph.

    >>> square = Compiled(lambda x: x * x)
    >>> square(torch.tensor(3.0))
    tensor(9.)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._graph: Callable[..., Any] | None = None
        self._called = self._failed = False

    def __call__(self, *args: Any) -> Any:
        if not self._called or self._failed:
            result = self._function(*args)
            self._called = True
            return result
        if self._graph is None:
            self._graph = torch.compile(_own(self._function), dynamic=False, fullgraph=True)
        before = torch.get_rng_state()
        try:
            return self._graph(*args)
        except Exception as error:  # of the compiler's many; a fault of the step itself shows again below
            torch.set_rng_state(before)
            result = self._function(*args)
            self._failed = True
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            warnings.warn(_EAGER.format(f"{type(error).__name__}: {reason:.200}"), SteadyStateWarning, stacklevel=2)
            return result


_EAGER = (
    "compile=True: this training step cannot be one graph of torch.compile ({}), so it runs as it is, without a difference in "
    "its results. Leave compile away, or what stands in the way: BatchNorm in training mode, .item() and the like in the loss."
)


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls this one, with a code object that no other has."""

    def call(*args: Any) -> Any:
        return function(*args)

    code = call.__code__.replace(co_name=f"call_{id(function)}")
    return FunctionType(code, globals(), code.co_name, None, call.__closure__)
