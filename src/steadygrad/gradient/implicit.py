"""Implicit differentiation: recurrent back-propagation in all its forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from steadygrad.fixedpoint import FixedPointSolver, Outcome, Picard
from steadygrad.gradient.method import Gradient, Problem, Solved, finite_part, own_constants, without_graph
from steadygrad.gradient.reroute import Adjoint, Correct, Guard, Reroute
from steadygrad.jacobian import Jacobian
from steadygrad.linear import Dense, Neumann, Recurrence
from steadygrad.linear.solver import AdjointSolver
from steadygrad.solution import AdjointRecord

Initial = Literal["zeros", "uniform"]


@dataclass(frozen=True, repr=False)
class Implicit(Gradient):
    """dL/dw = zᵀ ∂F/∂w with (I − Jᵀ) z = ∂L/∂h*, by the implicit function theorem.

    Exact at a steady state where I − J is invertible, in memory that depends neither on the forward steps nor on the
    solver's. `Implicit(Picard(...))` is original RBP, `Implicit(NormalCG(...))` CG-RBP, `Implicit(Neumann(...))`
    Neumann-RBP (Liao et al. 2018). `initial="uniform"` draws z₀ from U[0, 1] as the paper's Algorithm 1 does; `seed` fixes
    the draw.

    >>> Implicit(Neumann(steps=20))
    Implicit(Neumann(steps=20))
    """

    solver: AdjointSolver | Dense | FixedPointSolver
    initial: Initial = "zeros"
    seed: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.solver, (AdjointSolver, Dense, FixedPointSolver)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Implicit takes a solver, such as Neumann(steps=20) or NormalCG(); got {self.solver!r}.")
        if self.initial not in get_args(Initial):
            raise ValueError(f'initial must be "zeros" or "uniform"; got {self.initial!r}.')
        if self.initial == "uniform" and isinstance(self.solver, (Neumann, Dense)):
            raise ValueError(f'{type(self.solver).__name__} has no start, so initial="uniform" would be ignored.')
        if self.seed is not None and self.initial == "zeros":
            raise ValueError('seed is the seed of initial="uniform"; with initial="zeros" it would be ignored.')

    @property
    def adjoint(self) -> AdjointSolver | Dense:
        """The solver of the adjoint equation."""
        return Recurrence(self.solver) if isinstance(self.solver, FixedPointSolver) else self.solver

    def check_derivatives(self, derivatives: int) -> None:
        if derivatives > 1 and self.adjoint.counts:
            raise ValueError(
                f"derivatives={derivatives} needs an adjoint solved to a tolerance: a fixed count would be refined by the "
                f"higher orders and no longer be the method it names. Give {type(self.solver).__name__} an rtol."
            )

    def solve(self, problem: Problem) -> Solved:
        outcome = without_graph(problem)
        record = AdjointRecord()
        if not (torch.is_grad_enabled() and problem.update.requires_grad):
            iterates = {step: own_constants(problem, state) for step, state in outcome.iterates.items()}
            return Solved(own_constants(problem, outcome.value), outcome, record, iterates)
        moved = _moved(problem.forward, outcome)
        iterates = {step: self._attached(problem, state, AdjointRecord(), moved) for step, state in outcome.iterates.items()}
        return Solved(self._attached(problem, outcome.value, record, moved), outcome, record, iterates)

    def _attached(self, problem: Problem, h: Tensor, record: AdjointRecord, moved: bool) -> list[Tensor]:
        """The tensors of h with the derivatives of a steady state."""
        at, rows = finite_part(problem, h)
        update = problem.update if rows is None else problem.update.of_rows(rows)
        adjoint = Adjoint(
            update=update,
            h=at,
            jacobian=Jacobian(update, at),
            solver=self.adjoint,
            record=record,
            on_failure=problem.on_failure,
            batch=tuple(problem.update.layout.batch),
            rows=rows,
            start=None if self.adjoint.counts else problem.adjoint,
            uniform=self.initial == "uniform",
            seed=self.seed,
            moved=moved,
            name=repr(self.solver),
        )
        values = problem.update.layout.split(h)
        with torch.enable_grad():
            if problem.derivatives == 1:
                return list(Reroute.apply(adjoint, values, *adjoint.jacobian.outputs))
            if rows is None:
                return _attach_often(adjoint, problem.derivatives, values)
            index = torch.tensor(rows, device=h.device)
            parts = _attach_often(adjoint, problem.derivatives, [value[index] for value in values])
            return [value.clone().index_copy(0, index, part) for value, part in zip(values, parts, strict=True)]


def _attach_often(adjoint: Adjoint, levels: int, values: list[Tensor]) -> list[Tensor]:
    """Each attachment out ← out + (I − J)⁻¹(F(out) − out) is a Newton step, so n of them make n derivatives exact."""
    out = [value.detach() for value in values]
    images = adjoint.jacobian.outputs
    for level in range(1, levels + 1):
        if level > 1:
            images = adjoint.update.linearise(out)
        gaps = [image - part for image, part in zip(images, out, strict=True)]
        out = [part + zero for part, zero in zip(out, Correct.apply(adjoint, level, levels, *gaps), strict=True)]
    return list(Guard.apply(0, levels, len(out), *out, *images))


def _moved(forward: FixedPointSolver, outcome: Outcome) -> bool:
    """Whether the plain iteration shows that F gave different values at different states: then it depends on h."""
    plain = isinstance(forward, Picard) and not forward.damping
    return plain and any(residual > 0 for step, residual in outcome.residuals if step > 1)
