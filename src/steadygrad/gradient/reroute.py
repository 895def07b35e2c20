"""The autograd Functions that give a steady state its derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from steadygrad.jacobian import Jacobian, transposed
from steadygrad.linear import Dense, LinearSolution
from steadygrad.linear.error import Known
from steadygrad.linear.rows import dot, over
from steadygrad.linear.solver import AdjointSolver
from steadygrad.solution import (
    AdjointRecord,
    AdjointSolution,
    OnFailure,
    Problems,
    Status,
    SteadyStateError,
    magnitude,
    report_failure,
)
from steadygrad.update import Update


@dataclass
class Adjoint:
    """The frozen linear system of one steady state: from cotangents b to z, leaving the certificate behind.

    `rows` are the problems that F was linearised for, where some had no finite state; None for all.
    """

    update: Update
    h: Tensor
    """Where F was linearised."""
    jacobian: Jacobian
    solver: AdjointSolver | Dense
    record: AdjointRecord
    on_failure: OnFailure
    batch: tuple[int, ...] = ()
    rows: list[int] | None = None
    start: Tensor | None = None
    uniform: bool = False
    seed: int | None = None
    moved: bool = False
    """Whether F is known to depend on h: then a J that autograd does not see is an error."""
    name: str = ""
    outer: float | None = field(default=None, init=False)
    """The size of the cotangent that the outermost attachment has just solved for."""

    def solve(self, cotangents: Sequence[Tensor], transpose: bool = False) -> list[Tensor]:
        """z with (I − Jᵀ) z = b, or (I − J) z = b, as tensors of the state."""
        layout = self.jacobian.layout
        with torch.no_grad():
            b = torch.cat([c.reshape(layout.problems, -1) for c in cotangents], dim=1)
            before = self.jacobian.products
            start = None if transpose else self._start(b)
            spent = self.jacobian.products - before
            solved, products = self._solve(self.jacobian, b, start, transpose)
            if not transpose:
                self.record.z = solved.z
            problems = Problems(tuple(self._all_rows(solved.status)), self.batch)
            self.record.last = AdjointSolution(
                status=problems.worst,
                products=spent + products,
                residual=max(solved.residual),
                solver=self.name,
                errors=solved.error,
                problems=problems,
            )
            self._report(self.record.last)
            return layout.split(solved.z)

    def _solve(self, jacobian: Jacobian, b: Tensor, start: Tensor | None, transpose: bool) -> tuple[LinearSolution, int]:
        """Solve all rows together; when only a quarter is left, linearise F for these alone and go on with them."""
        few = b.shape[0] // 4 if self.update.divisible else 0
        before = jacobian.products
        solved = self.solver.solve(transposed(jacobian) if transpose else jacobian, b, start, few)
        products = jacobian.products - before
        left = solved.unfinished
        if left:
            part = Jacobian(self.update.of_rows(left), self.h[left])
            before = part.products
            rest = self.solver.solve(transposed(part) if transpose else part, b[left], solved.z[left])
            products += part.products - before
            solved = _merged(solved, rest, left)
        return solved, products

    def select(self, cotangents: Sequence[Tensor]) -> list[Tensor]:
        """The cotangents of the problems that F was linearised for."""
        if self.rows is None:
            return list(cotangents)
        return [cotangent[self.rows] for cotangent in cotangents]

    def is_rest(self, cotangents: Sequence[Tensor], last: bool) -> bool:
        """Whether these are no more than what the outermost solve, just done, has left over."""
        outer, done = self.outer, self.record.last
        if last:
            self.outer = None
        if outer is None or done is None:
            return False
        return _size(cotangents) <= (2 * done.residual + 1e-15) * outer

    def _all_rows(self, statuses: list[Status]) -> list[Status]:
        if self.rows is None:
            return statuses
        everywhere = [Status.NONFINITE] * self.batch[0]
        for row, status in zip(self.rows, statuses, strict=True):
            everywhere[row] = status
        return everywhere

    def _start(self, b: Tensor) -> Tensor | None:
        if self.uniform:
            generator = None if self.seed is None else torch.Generator(b.device).manual_seed(self.seed)
            return torch.rand(b.shape, dtype=b.dtype, device=b.device, generator=generator)
        z = self.start
        if z is None or z.shape != b.shape or not z.isfinite().all() or not z.any():
            return None
        # The loss may have another scale or sign by now: the best multiple of z is never worse than nothing.
        image = z - self.jacobian.vjp(z)
        return over(dot(b, image), dot(image, image)) * z

    def _report(self, adjoint: AdjointSolution) -> None:
        if self.jacobian.structurally_zero and self.moved:
            report_failure(_NO_PATH, self.on_failure)
        asked_for = adjoint.status is Status.MAX_STEPS and self.solver.counts
        if adjoint.status is not Status.CONVERGED and not asked_for:
            report_failure(
                f"{adjoint.problems.failed}the adjoint solve by {adjoint.solver} ended {adjoint.status.name}: relative residual "
                f"{magnitude(adjoint.residual)}, relative error {magnitude(adjoint.error_estimate)}. {adjoint.advice}",
                self.on_failure,
            )


def _merged(solved: LinearSolution, rest: LinearSolution, rows: list[int]) -> LinearSolution:
    """The solution with some rows replaced by those of another."""
    z, errors = solved.z.clone(), list(solved.error.values())
    status, residual = list(solved.status), list(solved.residual)
    z[rows] = rest.z
    for i, row in enumerate(rows):
        status[row], residual[row], errors[row] = rest.status[i], rest.residual[i], rest.error.values()[i]
    return LinearSolution(z, status, residual, Known(errors))


def _size(tensors: Sequence[Tensor]) -> float:
    with torch.no_grad():
        return sum(float(tensor.square().sum()) for tensor in tensors) ** 0.5


_NO_PATH = (
    "autograd sees no path from the state to F(state), yet F changed when the state did: the gradient leaves out how the "
    "steady state depends on itself. Look in F for detach(), torch.no_grad(), numpy, or a collective without a derivative."
)


class Reroute(torch.autograd.Function):
    """The identity on h* whose backward hands z instead of b to F(h*), from where autograd carries it on."""

    @staticmethod
    def forward(ctx: Any, adjoint: Adjoint, values: list[Tensor], *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.adjoint = adjoint
        ctx.save_for_backward(*adjoint.jacobian.saved.take())
        return tuple(value.clone() for value in values)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        adjoint: Adjoint = ctx.adjoint
        adjoint.jacobian.saved.put(ctx.saved_tensors)
        z: Sequence[Tensor] = adjoint.solve(adjoint.select(cotangents))
        if torch.is_grad_enabled():
            z = Once.apply(len(z), *z, *cotangents, *adjoint.jacobian.outputs)
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
        raise SteadyStateError(_BEYOND.format("second derivative", 1, 2))


_BEYOND = (
    "{} of a steady state asked for, beyond the derivatives={} that this solve declared; the lower ones are right. "
    "Declare derivatives={}. (A steady state inside the F of another needs it too where the outer solver multiplies by J; "
    'gradient="neumann-rbp" does not.)'
)


class Correct(torch.autograd.Function):
    """Zero, with the derivative of the Newton correction (I − J)⁻¹ (F(h) − h), J frozen at h*.

    `level` counts from the innermost attachment, 1, to the outermost, `levels`. At first order what reaches an inner one is
    the residual of the outer solve, and is let go without a solve of its own.
    """

    @staticmethod
    def forward(ctx: Any, adjoint: Adjoint, level: int, levels: int, *gaps: Tensor) -> tuple[Tensor, ...]:
        ctx.adjoint, ctx.level, ctx.levels = adjoint, level, levels
        return tuple(torch.zeros_like(gap) for gap in gaps)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        adjoint: Adjoint = ctx.adjoint
        if ctx.level < ctx.levels and adjoint.is_rest(cotangents, last=ctx.level == 1):
            return (None, None, None, *Skip.apply(adjoint, *cotangents))
        z = Solve.apply(adjoint, False, *cotangents)
        adjoint.outer = _size(cotangents) if ctx.level == ctx.levels else None
        return (None, None, None, *z)


class Solve(torch.autograd.Function):
    """b ↦ (I − Jᵀ)⁻¹ b, or its transpose: linear in b, hence differentiable as often as one likes."""

    @staticmethod
    def forward(ctx: Any, adjoint: Adjoint, transpose: bool, *b: Tensor) -> tuple[Tensor, ...]:
        ctx.adjoint, ctx.transpose = adjoint, transpose
        return tuple(z.clone() for z in adjoint.solve(b, transpose))

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        return (None, None, *Solve.apply(ctx.adjoint, not ctx.transpose, *cotangents))


class Skip(torch.autograd.Function):
    """Solve for a b that is nothing but the rest of another solve: the value is dropped, the derivative kept."""

    @staticmethod
    def forward(ctx: Any, adjoint: Adjoint, *b: Tensor) -> tuple[Tensor, ...]:
        ctx.adjoint = adjoint
        return tuple(torch.zeros_like(part) for part in b)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        return (None, *Solve.apply(ctx.adjoint, True, *cotangents))


class Guard(torch.autograd.Function):
    """Counts the derivatives that pass and refuses the one after the last declared.

    Its backward applies itself again to the cotangent and to anchors that depend on whatever F depends on, so that the
    next derivative meets it whether the loss is linear or not.
    """

    @staticmethod
    def forward(ctx: Any, order: int, limit: int, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.order, ctx.limit, ctx.count, ctx.anchors = order, limit, count, tensors[count:]
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        if ctx.order == ctx.limit:
            raise SteadyStateError(_BEYOND.format(f"derivative {ctx.limit + 1}", ctx.limit, ctx.limit + 1))
        anchors: Sequence[Tensor] = ctx.anchors
        nothing = [None] * len(anchors)
        if not torch.is_grad_enabled():
            return (None, None, None, *cotangents, *nothing)
        zeros = [] if ctx.order == 0 else [torch.zeros_like(anchor) for anchor in anchors]
        guarded = [*cotangents, *zeros]
        passed = Guard.apply(ctx.order + 1, ctx.limit, len(guarded), *guarded, *anchors)
        return (None, None, None, *passed, *(nothing if ctx.order == 0 else []))
