"""Implicit differentiation: recurrent back-propagation in all its forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from steadygrad.fixedpoint import FixedPointSolver, Outcome
from steadygrad.gradient.method import Gradient, Problem, Solved, own_leaves, without_graph
from steadygrad.jacobian import Jacobian
from steadygrad.linear import Dense, LinearSolution, Neumann, Recurrence
from steadygrad.linear.solver import AdjointSolver
from steadygrad.solution import AdjointRecord, AdjointSolution, OnFailure, Status, SteadyStateError, magnitude, report_failure

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

    def solve(self, problem: Problem) -> Solved:
        outcome = without_graph(problem)
        record = AdjointRecord()
        if not (torch.is_grad_enabled() and problem.update.requires_grad):
            return Solved(own_leaves(problem, outcome.value), outcome, record)
        jacobian = Jacobian(problem.update, outcome.value)
        backward = Backward(jacobian, self, record, problem.on_failure, _moved(outcome))
        values = problem.update.layout.split(outcome.value)
        with torch.enable_grad():
            leaves = Reroute.apply(backward, values, *jacobian.outputs)
        return Solved(list(leaves), outcome, record)


def _moved(outcome: Outcome) -> bool:
    """Whether F gave different values at different states: then it depends on h."""
    return any(residual > 0 for step, residual in outcome.residuals if step > 1)


@dataclass(frozen=True)
class Backward:
    """The backward pass of one steady state: from the cotangent b to z, leaving the certificate behind."""

    jacobian: Jacobian
    gradient: Implicit
    record: AdjointRecord
    on_failure: OnFailure
    moved: bool

    def __call__(self, cotangents: tuple[Tensor, ...]) -> list[Tensor]:
        layout = self.jacobian.layout
        with torch.no_grad():
            b = layout.flatten(cotangents)
            before = self.jacobian.products
            solved = self.gradient.adjoint.solve(self.jacobian, b, self._start(b))
            self._certify(solved, self.jacobian.products - before)
            return layout.split(solved.z)

    def _start(self, b: Tensor) -> Tensor | None:
        if self.gradient.initial == "zeros":
            return None
        seed = self.gradient.seed
        generator = None if seed is None else torch.Generator(b.device).manual_seed(seed)
        return torch.rand(b.shape, dtype=b.dtype, device=b.device, generator=generator)

    def _certify(self, solved: LinearSolution, products: int) -> None:
        adjoint = AdjointSolution(
            status=worst(solved.status),
            products=products,
            residual=max(solved.residual),
            errors=solved.error,
            solver=repr(self.gradient.solver),
        )
        self.record.last = adjoint
        if self.jacobian.structurally_zero and self.moved:
            report_failure(_NO_PATH, self.on_failure)
        asked_for = adjoint.status is Status.MAX_STEPS and self.gradient.adjoint.counts
        if not (adjoint.converged or asked_for):
            report_failure(_failure_message(adjoint), self.on_failure)


def worst(status: list[Status]) -> Status:
    """The status that says most about what went wrong."""
    order = [Status.NONFINITE, Status.DIVERGED, Status.STAGNATED, Status.MAX_STEPS, Status.CONVERGED]
    return min(status, key=order.index)


def _failure_message(adjoint: AdjointSolution) -> str:
    return (
        f"the adjoint solve by {adjoint.solver} ended {adjoint.status.name}: relative residual {magnitude(adjoint.residual)}, "
        f"relative error {magnitude(adjoint.error_estimate)}. {adjoint.advice}"
    )


_NO_PATH = (
    "autograd sees no path from the state to F(state), yet F changed when the state did: the gradient leaves out how the "
    "steady state depends on itself. Look in F for detach(), torch.no_grad(), numpy, or a collective without a derivative."
)


class Reroute(torch.autograd.Function):
    """The identity on h* whose backward hands z instead of b to F(h*), from where autograd carries it on."""

    @staticmethod
    def forward(ctx: Any, backward: Backward, values: list[Tensor], *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.rerouted = backward
        ctx.save_for_backward(*backward.jacobian.saved.take())
        return tuple(value.clone() for value in values)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        rerouted: Backward = ctx.rerouted
        rerouted.jacobian.saved.put(ctx.saved_tensors)
        z = rerouted(cotangents)
        if torch.is_grad_enabled():
            z = Once.apply(len(z), *z, *cotangents, *rerouted.jacobian.outputs)
        return (None, None, *z)


class Once(torch.autograd.Function):
    """Lets z pass and refuses to be differentiated.

    z depends on the cotangent and, through J and h*, on whatever F depends on, so both are inputs: a second derivative
    by either way arrives here, whether the loss is linear or not.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(z.clone() for z in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        raise SteadyStateError(
            "second derivative of a steady state asked for, which this solve does not provide; its first derivative is "
            'right. Use gradient="bptt" with many forward steps where you need higher derivatives.'
        )
