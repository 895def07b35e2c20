"""What a gradient method is given and what it gives back."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadygrad.fixedpoint import FixedPointSolver
from steadygrad.iteration import Ended
from steadygrad.iteration.norms import leaf_norms
from steadygrad.iteration.strides import LARGE
from steadygrad.method import Method
from steadygrad.solution import AdjointRecord, OnFailure, Status, report_failure
from steadygrad.state.shards import everywhere, rows_everywhere
from steadygrad.update import AGREEMENT, Update
from steadygrad.update.compiled import CompiledUpdate, graphs_for


@dataclass
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
    compile: bool = False
    """Whether several steps, or products, are run as one graph."""


@dataclass
class Solved:
    """The tensors of the steady state, with their gradient, and how they were found."""

    leaves: list[Tensor]
    ended: Ended
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


def without_graph(problem: Problem) -> Ended:
    """The steady state found without recording anything; problems that have ended are left out where F allows it."""
    update, layout = problem.update, problem.update.layout
    with torch.set_grad_enabled(False):
        start = problem.start.detach()
        divide = update.divisible and not problem.iterates
        call = update
        if problem.compile:
            count = problem.forward.max_steps if problem.forward.counts else None
            compiled = CompiledUpdate(update, graphs_for(count, start.numel() > LARGE))
            call = compiled if compiled.ready(start) else update
        ended = problem.forward.solve(call, start, layout.sizes, update.precision, divide, problem.iterates)
        if ended.divided and _moves(problem, ended):
            update.couples()
            ended = problem.forward.solve(update, start, layout.sizes, update.precision, False, problem.iterates)
    ended.recent.clear()  # nobody asks for it any more, and the linearisation needs the memory
    if update.coupled:
        report_failure(_COUPLED, problem.on_failure)
    return ended


SLACK = 10.0
"""A converged problem that moves by so many times its tolerance once the others are back was not converged without them."""

_COUPLED = (
    "F couples the problems of the batch: leaving some out changes the others, so batch_dims is not for this F. They were "
    "solved together instead. Give batch_dims=0 for one problem; let F use its arguments row by row (no mean over the "
    "batch, no table indexed by position); for graphs batched as one give batch_index."
)


def _moves(problem: Problem, ended: Ended) -> bool:
    """Whether F on all problems moves states that were found with some of them left out."""
    update, forward = problem.update, problem.forward
    done = [i for i, status in enumerate(ended.status) if status is Status.CONVERGED]
    moved, size = leaf_norms([update(ended.value) - ended.value, ended.value], update.layout.sizes)
    eps = torch.finfo(update.precision).eps
    allowed = SLACK * (max(forward.rtol, eps) * ended.scale + forward.atol) + AGREEMENT * eps * size
    return bool((moved > allowed)[done].any())


def own_leaves(problem: Problem, value: Tensor) -> list[Tensor]:
    """The tensors of a flat state, each with memory of its own, since F may return what it holds on to."""
    return [leaf.clone() for leaf in problem.update.layout.split(value)]


def own_constants(problem: Problem, value: Tensor) -> list[Tensor]:
    """The tensors of a flat state where nothing needs a gradient, each with memory of its own."""
    return own_leaves(problem, value.detach())


def finite_part(problem: Problem, h: Tensor) -> tuple[Tensor, list[int] | None]:
    """A finite state to differentiate at where some problems have none: those left out, or put back to their start."""
    if h.shape[0] == 1 or everywhere(math.isfinite(h.sum().item())):  # the usual case, in a sixth of the time
        return h, None
    finite = rows_everywhere(h.isfinite().all(dim=1))
    if finite.all():
        return h, None
    rows: list[int] = finite.nonzero().flatten().tolist()
    if problem.update.divisible and rows:
        return h[rows], rows
    return torch.where(finite.unsqueeze(1), h, problem.start.detach()), None
