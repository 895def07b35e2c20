"""Equilibrium: a torch cell run to its steady state, as a layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from steadygrad.api import resolve_gradient, steady_state
from steadygrad.diagnose.history import History
from steadygrad.fixedpoint import FixedPointSolver, Picard
from steadygrad.gradient import Gradient
from steadygrad.method import check_count
from steadygrad.solution import OnFailure, Solution, SteadyStateError, check_on_failure
from steadygrad.state import State, map_state


class Equilibrium(nn.Module):
    """The steady state of `cell(x, h) -> h` for an input x that stays.

    Cells of torch work as they are: `Equilibrium(nn.GRUCell(16, 32))`, `Equilibrium(nn.LSTMCell(16, 32))`. Without `h0`
    the search starts at `initial(x)`, or at zeros in the structure that `cell(x, None)` returns. `layer.solution` is the
    last solution with its value detached; after a backward pass its `.adjoint` is the certificate.

    `warm_start=True` starts state and adjoint from the last solution, where shapes allow. It pays where the same inputs come
    back with slightly changed weights, as in full-batch training; with shuffled batches the last solution belongs to other
    inputs, and a cold start is better.

    `diagnose_every=100` checks the assumptions at the first and every hundredth forward call in training mode: ρ(J) by some 40
    products, beside the residuals of the solves. `layer.history` holds the checks; a warning comes once, when they fail.

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
        warm_start: bool = False,
        initial: Callable[[Any], State] | None = None,
        batch_dims: int = 0,
        derivatives: int = 1,
        on_failure: OnFailure = "warn",
        diagnose_every: int = 0,
    ) -> None:
        super().__init__()
        if not callable(cell):
            raise TypeError(f"cell must be callable as cell(x, h); got {type(cell).__name__}.")
        check_on_failure(on_failure)
        self.cell = cell
        self.search = forward
        self.gradient = resolve_gradient(gradient)
        self.initial = initial
        self.warm_start = warm_start
        self.batch_dims = batch_dims
        self.derivatives = derivatives
        self.on_failure: OnFailure = on_failure
        self.solution = None
        check_count("diagnose_every", diagnose_every, least=0)
        self._history = History(diagnose_every) if diagnose_every else None

    @property
    def history(self) -> History:
        """The checks made so far, with `diagnose_every`."""
        if self._history is None:
            raise SteadyStateError("this layer keeps no history; build it with Equilibrium(..., diagnose_every=100).")
        self._history.complete()
        return self._history

    def forward(self, x: Any, h0: State | None = None) -> State:
        """The steady state for x, from h0 if given."""
        start = self._start(x) if h0 is None else h0
        if self._history is not None:
            self._history.complete()
            self._history.warn(self.on_failure)
        solution = steady_state(
            self._update,
            start,
            x,
            forward=self.search,
            gradient=self.gradient,
            batch_dims=self.batch_dims,
            derivatives=self.derivatives,
            on_failure=self.on_failure,
            warm=self.solution if self.warm_start else None,
        )
        self.solution = replace(solution, value=map_state(Tensor.detach, solution.value))
        if self._history is not None and self.training and self._history.due():
            self._history.check(self._update, (x,), self.solution, self.batch_dims)
            self._history.warn(self.on_failure)
        return solution.value

    def _update(self, h: State, x: Any) -> State:
        return self.cell(x, h)

    def _start(self, x: Any) -> State:
        if self.initial is not None:
            return self.initial(x)
        try:
            with torch.no_grad():
                return map_state(torch.zeros_like, self.cell(x, None))
        except (TypeError, AttributeError) as error:
            raise TypeError(
                f"the cell cannot be called as cell(x, None) to learn the structure of its state ({error}); "
                "give layer(x, h0), or Equilibrium(cell, initial=lambda x: ...)."
            ) from error

    def extra_repr(self) -> str:
        return f"forward={self.search!r}, gradient={self.gradient!r}"
