"""What a gradient method is given and what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Solved:
    """The tensors of the steady state, with their gradient, and how they were found."""

    leaves: list[Tensor]
    outcome: Outcome
    record: AdjointRecord


class Gradient(Method, ABC):
    """Finds the steady state of a problem in such a way that it can be differentiated."""

    @abstractmethod
    def solve(self, problem: Problem) -> Solved: ...


def without_graph(problem: Problem) -> Outcome:
    """The steady state found without recording anything."""
    with torch.no_grad():
        return problem.forward.solve(problem.update, problem.start.detach())


def own_leaves(problem: Problem, value: Tensor) -> list[Tensor]:
    """The tensors of a flat state, each with memory of its own, since F may return what it holds on to."""
    return [leaf.clone() for leaf in problem.update.layout.split(value)]
