"""Equilibrium: a torch cell run to its steady state, as a layer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from steadygrad.api import resolve_gradient, steady_state
from steadygrad.compiler import outside_graphs
from steadygrad.diagnose.history import History
from steadygrad.fixedpoint import FixedPointSolver, Picard
from steadygrad.gradient import Gradient
from steadygrad.method import check_callable, check_count
from steadygrad.solution import OnFailure, Solution, SteadyStateError, check_on_failure
from steadygrad.state import State, in_full_precision, leaves_of, map_state
from steadygrad.state.shards import check_group
from steadygrad.update.levels import Levels
from steadygrad.update.order import refuse_swapped_names, wrong_shape


class Equilibrium(nn.Module):
    """The steady state of `cell(x, h) -> h` for an input x that stays.

    Cells of torch work as they are: `Equilibrium(nn.GRUCell(16, 32))`, `Equilibrium(nn.LSTMCell(16, 32))`. Without `h0`
    the search starts at `initial(x)`, or at zeros in the structure that `cell(x, None)` returns. `layer.solution` is the
    last solution with its value detached; after a backward pass its `.adjoint` is the certificate. Copies and saved layers
    start without one: it holds the last batch. Inside torch.func its value is what lies below the transforms: plain tensors, led
    by the vmapped dimensions.

    **Input first, then state**: `cell(x, h)`, as torch's cells have it, while `steady_state` calls `update(h, x)`. A cell that
    takes its state first, such as a block f(z, x) of torchdeq, needs `state_first=True`; where the names of its parameters tell
    (z, h, state, … before x, input, …) the layer insists on it.

    `warm_start=True` starts state and adjoint from the last solution, where shapes allow, in training mode. It pays where the
    same inputs come back with slightly changed weights, as in full-batch training; with shuffled batches the last solution
    belongs to other inputs, and a cold start is better. In eval mode the start is cold, since where there are several steady
    states one input would decide which of them the next one gets; `warm_start="always"` is warm there too.

    `diagnose_every=100` checks the assumptions at the first and every hundredth forward call in training mode: ρ(J) by some 40
    products, beside the residuals of the solves. `layer.history` holds the checks; a warning comes once, when they fail. Calls
    inside torch.func are not checked.

    `group`: the state is divided over the ranks of a process group, as in `steady_state`. Copies keep the group; a layer with
    one cannot be pickled, since a process group belongs to its process: save its `state_dict()`.

    >>> import torch, steadygrad as sg
    >>> layer = sg.Equilibrium(torch.nn.GRUCell(4, 8), gradient="neumann-rbp")
    >>> layer(torch.zeros(2, 4)).shape
    torch.Size([2, 8])
    """

    solution: Solution | None

    def __init__(
        self,
        cell: Callable[..., State],
        *,
        forward: FixedPointSolver = Picard(),
        gradient: str | Gradient = "auto",
        warm_start: bool | Literal["always"] = False,
        initial: Callable[[Any], State] | None = None,
        batch_dims: int = 0,
        derivatives: int = 1,
        on_failure: OnFailure = "warn",
        compile: bool = False,
        diagnose_every: int = 0,
        state_first: bool | None = None,
        group: Any = None,
    ) -> None:
        super().__init__()
        check_callable("cell", cell, "cell(x, h)")
        check_on_failure(on_failure)
        if warm_start not in (True, False, "always"):
            raise ValueError(f'warm_start must be True (in training), False or "always"; got {warm_start!r}.')
        if state_first is None:
            refuse_swapped_names(cell)
        self.cell = cell
        self.search = forward
        self.gradient = resolve_gradient(gradient)
        self.initial = initial
        self.warm_start = warm_start
        self.batch_dims = batch_dims
        self.derivatives = derivatives
        self.on_failure: OnFailure = on_failure
        self.compile_steps = compile
        self.state_first = bool(state_first)
        self.group = _Group(group)
        self.solution = None
        self._differentiable = False
        """Whether the value of the last solution has a gradient."""
        check_count("diagnose_every", diagnose_every, least=0)
        if diagnose_every and group is not None:
            raise ValueError("diagnose_every looks at J in one process; with group= leave it at 0.")
        self._history = History(diagnose_every) if diagnose_every else None

    @property
    def history(self) -> History:
        """The checks made so far, with `diagnose_every`."""
        if self._history is None:
            raise NoHistoryError(_NO_HISTORY)
        self._history.complete()
        return self._history

    def __getattr__(self, name: str) -> Any:
        if name == "history":  # the property has just raised; torch's own words would hide why
            raise NoHistoryError(_NO_HISTORY)
        return super().__getattr__(name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "solution": None}  # the last batch has no place in a saved model

    @outside_graphs
    def forward(self, x: Any, h0: State | None = None, batch_index: Tensor | None = None) -> State:
        """The steady state for x, from h0 if given; with `batch_index`, a problem a graph (see `steady_state`)."""
        start = in_full_precision(self._start(x) if h0 is None else h0)
        if self._history is not None:
            self._history.complete()
            self._history.warn(self.on_failure)
        if "torch.distributed.fsdp" in sys.modules:
            _refuse_sharded_cell(self.cell)
        warm = self.warm_start == "always" or (self.warm_start and self.training)
        solution = steady_state(
            self._update,
            start,
            x,
            forward=self.search,
            gradient=self.gradient,
            batch_dims=self.batch_dims,
            batch_index=batch_index,
            derivatives=self.derivatives,
            on_failure=self.on_failure,
            compile=self.compile_steps,
            warm=self.solution if warm else None,
            group=self.group.of_processes,
        )
        if not torch.compiler.is_exporting() and not self._repeats():
            self._keep(solution, x)
        return solution.value

    def _repeats(self) -> bool:
        """Whether this run only repeats the one whose graph is being differentiated.

        Non-reentrant checkpoint runs the layer again during the backward pass for its saved tensors, while the certificate
        goes to the solution of the first run. (Reentrant checkpoint has no graph at first, and differentiates the second run.)
        """
        return self.solution is not None and self._differentiable and _in_backward()

    def _keep(self, solution: Solution, x: Any) -> None:
        """Remember the solution, and check the assumptions at it when that is due."""
        levels = Levels.now()
        value = map_state(Tensor.detach, solution.value) if levels is None else levels.plain(solution.value)
        self.solution = replace(solution, value=value)
        self._differentiable = any(leaf.requires_grad for leaf in leaves_of(solution.value))
        if levels is not None:
            return  # tensors inside a transform have no numbers to check
        if self._history is not None and self.training and self._history.due():
            self._history.check(self._update, (x,), self.solution, self.batch_dims)
            self._history.warn(self.on_failure)

    def _update(self, h: State, x: Any) -> State:
        new = self._call_cell(x, h)
        if isinstance(new, Tensor) and isinstance(h, Tensor) and new.shape != h.shape:
            raise ValueError(wrong_shape(x, h, new, self._called_as))
        return new

    def _call_cell(self, x: Any, h: State) -> State:
        try:
            return self.cell(h, x) if self.state_first else self.cell(x, h)
        except (RuntimeError, TypeError, IndexError) as error:
            if not isinstance(error, SteadyStateError):
                error.add_note(f"Equilibrium called {self._called_as}, x being its input and h the state: is that its order?")
            raise

    @property
    def _called_as(self) -> str:
        return "cell(h, x)" if self.state_first else "cell(x, h)"

    def _start(self, x: Any) -> State:
        if self.initial is not None:
            return self.initial(x)
        try:
            with torch.no_grad():
                return map_state(torch.zeros_like, self._call_cell(x, None))
        except (TypeError, AttributeError) as error:
            asked = "cell(None, x)" if self.state_first else "cell(x, None)"
            raise TypeError(
                f"the cell cannot be called as {asked} to learn the structure of its state ({error}); "
                "give layer(x, h0), or Equilibrium(cell, initial=lambda x: ...). The input comes first, then the state; "
                "state_first=True is for cells with the other order."
            ) from error

    def extra_repr(self) -> str:
        return f"{self._called_as}, forward={self.search!r}, gradient={self.gradient!r}"


class _Group:
    """A process group that stays the same in copies of the layer; None for none."""

    def __init__(self, of_processes: Any) -> None:
        if of_processes is not None:
            check_group(of_processes)
        self.of_processes = of_processes

    def __deepcopy__(self, memo: dict[int, Any]) -> _Group:
        return self

    def __getstate__(self) -> dict[str, Any]:
        if self.of_processes is not None:
            raise TypeError("a layer with group= cannot be pickled: the group belongs to its process. Save its state_dict().")
        return self.__dict__


class NoHistoryError(SteadyStateError, AttributeError):
    """The layer was built without `diagnose_every`: an AttributeError too, as `hasattr` and `inspect` expect of attributes."""


_NO_HISTORY = "this layer keeps no history; build it with Equilibrium(..., diagnose_every=100)."


def _refuse_sharded_cell(cell: Any) -> None:
    """Refuse a cell that exchanges its parameters in every call: ranks that take different numbers of steps would hang."""
    for part in cell.modules() if isinstance(cell, nn.Module) else ():
        if any(kind.__name__ in ("FSDPModule", "FullyShardedDataParallel") for kind in type(part).__mro__):
            raise SteadyStateError(
                f"{type(part).__name__} inside the cell of an Equilibrium was sharded by itself, so that every call of F would "
                "gather its parameters, and ranks that take different numbers of steps would wait for each other forever. Give "
                "fully_shard the layer (or what holds it) instead: its parameters are then gathered once a solve."
            )


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1  # pyright: ignore[reportAttributeAccessIssue]
