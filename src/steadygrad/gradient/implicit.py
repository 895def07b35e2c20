"""Implicit differentiation: recurrent back-propagation in all its forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy
import torch
from torch import Tensor

from steadygrad.fixedpoint import FixedPointSolver, Picard
from steadygrad.gradient.adjoint import NO_SEARCH, Adjoint, AdjointStart, Search
from steadygrad.gradient.exchange import check_exchange
from steadygrad.gradient.inverse import FrozenSystem
from steadygrad.gradient.problem import Gradient, Problem, Solved, finite_part, own_constants, without_graph
from steadygrad.gradient.reroute import Reroute, attach_often
from steadygrad.gradient.shift import Steady
from steadygrad.iteration import Ended
from steadygrad.linear import AdjointSolver, Dense, Neumann, Recurrence
from steadygrad.linear.units import sizes_of
from steadygrad.solution import AdjointRecord, OnFailure, Status
from steadygrad.state.shards import somewhere
from steadygrad.update import needs_gradient
from steadygrad.update.jacobian import Jacobian

Initial = Literal["zeros", "uniform"]
_INITIALS = get_args(Initial)


@dataclass(frozen=True, repr=False)
class Implicit(Gradient):
    """dL/dw = zᵀ ∂F/∂w with (I − Jᵀ) z = ∂L/∂h*, by the implicit function theorem.

    Exact at a steady state where I − J is invertible, in memory that depends neither on the forward steps nor on the
    solver's. `Implicit(Picard(...))` is original RBP, `Implicit(NormalCG(...))` CG-RBP, `Implicit(Neumann(...))`
    Neumann-RBP (Liao et al. 2018). `initial="uniform"` draws z₀ from U[0, 1] as the paper's Algorithm 1 does; `seed` fixes
    the draw.

    `check=False` leaves out the looks at what the distance of the state and the error of z do to the gradient, so that
    `adjoint.shift` and `adjoint.gradient_error` are None. After loose tolerances they take an evaluation of F and a few products.
    Residuals and estimates stay; a state that only such a look would find far from steady is not reported.

    >>> Implicit(Neumann(steps=20))
    Implicit(Neumann(steps=20))
    """

    solver: AdjointSolver | FixedPointSolver
    initial: Initial = "zeros"
    seed: int | None = None
    check: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.solver, (AdjointSolver, FixedPointSolver)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Implicit takes a solver, such as Neumann(steps=20) or NormalCG(); got {self.solver!r}.")
        if self.initial not in _INITIALS:
            raise ValueError(f'initial must be "zeros" or "uniform"; got {self.initial!r}.')
        if self.initial == "uniform" and isinstance(self.solver, (Neumann, Dense)):
            raise ValueError(f'{type(self.solver).__name__} has no start, so initial="uniform" would be ignored.')
        if not isinstance(self.check, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"check must be True or False; got {self.check!r}.")
        if self.seed is not None and self.initial == "zeros":
            raise ValueError('seed is the seed of initial="uniform"; with initial="zeros" it would be ignored.')

    @property
    def adjoint(self) -> AdjointSolver:
        """The solver of the adjoint equation."""
        return Recurrence(self.solver) if isinstance(self.solver, FixedPointSolver) else self.solver

    def check_derivatives(self, derivatives: int) -> None:
        if derivatives > 1 and self.adjoint.counts:
            raise ValueError(
                f"derivatives={derivatives} needs an adjoint solved to a tolerance: a fixed count would be refined by the "
                f"higher orders and no longer be the method it names. Give {type(self.solver).__name__} an rtol."
            )

    def adjoint_at(
        self,
        jacobian: Jacobian,
        record: AdjointRecord,
        on_failure: OnFailure,
        search: Search = NO_SEARCH,
        earlier: Tensor | None = None,
        compile: bool = False,
    ) -> Adjoint:
        """The adjoint equation at one linearisation of F, to be solved by this method; `earlier` is an adjoint to start from."""
        solver = self.adjoint
        start = AdjointStart(None if solver.counts else earlier, self.initial == "uniform", self.seed)
        sizes = None if search is NO_SEARCH else sizes_of(jacobian.update, jacobian.h)
        return Adjoint(jacobian, solver, record, on_failure, self.solver, start, compile, search, sizes, self.check)

    def solve(self, problem: Problem) -> Solved:
        ended = without_graph(problem)
        record = AdjointRecord(forward_steps=ended.steps)
        if not torch.is_grad_enabled():
            iterates = {step: own_constants(problem, state) for step, state in ended.iterates.items()}
            return Solved(own_constants(problem, ended.value), ended, record, iterates)
        iterates = {
            step: self._attached(problem, state, AdjointRecord(), seen_to_depend(problem, ended), None)
            for step, state in ended.iterates.items()
        }
        steady = said_steady(problem, ended)
        leaves = self._attached(problem, ended.value, record, seen_to_depend(problem, ended), steady)
        return Solved(leaves, ended, record, iterates)

    def _attached(self, problem: Problem, h: Tensor, record: AdjointRecord, depends: bool, steady: Steady | None) -> list[Tensor]:
        """The tensors of h with the derivatives of a steady state, if F reaches anything that needs one."""
        at, rows = finite_part(problem, h)
        index = None if rows is None else torch.tensor(rows, device=h.device)
        update = problem.update if index is None else problem.update.of_rows(index)
        jacobian = Jacobian(update, at, twice=problem.derivatives > 1)
        if not somewhere(needs_gradient(jacobian.outputs, besides=jacobian.inputs)):
            return own_constants(problem, h)
        check_exchange(jacobian, problem.on_failure)
        steady = steady if steady is None or rows is None else steady.of(rows)
        search = Search(tuple(problem.update.layout.batch), rows, depends, steady, record.forward_steps)
        adjoint = self.adjoint_at(jacobian, record, problem.on_failure, search, problem.adjoint, problem.compile)
        values = problem.update.layout.split(h)
        if problem.derivatives == 1:
            return list(Reroute.apply(adjoint, values, *jacobian.outputs))
        if index is None:
            return _attach_often(adjoint, problem.derivatives, values)
        parts = _attach_often(adjoint, problem.derivatives, [value[index] for value in values])
        return [value.clone().index_copy(0, index, part) for value, part in zip(values, parts, strict=True)]


def _attach_often(adjoint: Adjoint, levels: int, values: list[Tensor]) -> list[Tensor]:
    """The tensors of a steady state with so many exact derivatives."""
    images = adjoint.jacobian.outputs
    return attach_often(
        FrozenSystem(adjoint), levels, [value.detach() for value in values], images, adjoint.jacobian.update.linearise
    )


def seen_to_depend(problem: Problem, ended: Ended) -> bool:
    """Whether the plain iteration shows that F gave different values at different states: then it depends on h."""
    plain = isinstance(problem.forward, Picard) and not problem.forward.damping
    return plain and any(residual > 0 for step, residual in ended.residuals if step > 1)


def said_steady(problem: Problem, ended: Ended) -> Steady | None:
    """What the search knows of its states, where it said that some are steady to a tolerance."""
    if problem.forward.counts:
        return None
    said = [status is Status.CONVERGED for status in ended.status]
    if problem.forward.atol:  # a state that may be as small as that has no digits that one could ask for
        large = problem.forward.atol <= problem.forward.rtol * ended.scale.min(axis=1)
        said = [converged and bool(enough) for converged, enough in zip(said, large, strict=True)]
    if not any(said):
        return None
    steady = Steady(ended.scale, ended.distance, accelerated=problem.forward.remembered > 2)
    return steady if all(said) else steady.where(numpy.array(said))
