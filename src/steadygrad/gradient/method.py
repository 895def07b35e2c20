"""What a gradient method is given and what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadygrad.fixedpoint import FixedPointSolver, Outcome
from steadygrad.method import Method
from steadygrad.solution import AdjointRecord, OnFailure
from steadygrad.update import Update


@dataclass(frozen=True)
class Problem:
    """h = F(h) from a start, in flat form, with how to search and what to do on failure."""

    update: Update
    start: Tensor
    forward: FixedPointSolver
    on_failure: OnFailure
    derivatives: int = 1
    adjoint: Tensor | None = None
    """An earlier adjoint to start from."""
    iterates: frozenset[int] = frozenset()
    """The steps whose states are wanted too."""


@dataclass(frozen=True)
class Solved:
    """The tensors of the steady state, with their gradient, and how they were found."""

    leaves: list[Tensor]
    outcome: Outcome
    record: AdjointRecord
    iterates: dict[int, list[Tensor]] = field(default_factory=dict[int, list[Tensor]])


class Gradient(Method, ABC):
    """Finds the steady state of a problem in such a way that it can be differentiated."""

    @abstractmethod
    def solve(self, problem: Problem) -> Solved: ...

    def check_derivatives(self, derivatives: int) -> None:
        """Refuse orders that the method cannot make exact."""
        if derivatives > 1:
            raise ValueError(
                f"derivatives={derivatives}: {type(self).__name__} truncates the first derivative and has no exact higher ones; "
                'use an implicit gradient with a tolerance, or "bptt".'
            )


class Present:
    """The update for the problems that are left."""

    def __init__(self, update: Update) -> None:
        self._all = self.update = update

    def __call__(self, h: Tensor) -> Tensor:
        return self.update(h)

    def drop(self, rows: list[int]) -> bool:
        """Go on with these problems only, if F allows it."""
        if self._all.divisible:
            self.update = self._all.of_rows(rows)
        return self._all.divisible


def without_graph(problem: Problem) -> Outcome:
    """The steady state found without recording anything; problems that have ended are dropped where F allows it."""
    present = Present(problem.update)
    droppable = len(problem.update.layout.batch) == 1 and problem.update.args and not problem.iterates
    with torch.no_grad():
        start = problem.start.detach()
        return problem.forward.solve(present, start, present.drop if droppable else None, problem.iterates)


def own_leaves(problem: Problem, value: Tensor) -> list[Tensor]:
    """The tensors of a flat state, each with memory of its own, since F may return what it holds on to."""
    return [leaf.clone() for leaf in problem.update.layout.split(value)]


def own_constants(problem: Problem, value: Tensor) -> list[Tensor]:
    """The same where nothing needs a gradient."""
    return own_leaves(problem, value.detach())


def finite_part(problem: Problem, h: Tensor) -> tuple[Tensor, list[int] | None]:
    """A finite state to differentiate at where some problems have none: those left out, or put back to their start."""
    finite = h.isfinite().all(dim=1)
    if finite.all() or len(finite) == 1:
        return h, None
    rows: list[int] = finite.nonzero().flatten().tolist()
    if problem.update.divisible and rows:
        return h[rows], rows
    return torch.where(finite.unsqueeze(1), h, problem.start.detach()), None
