"""The autograd Functions that give a steady state its derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from steadygrad.gradient.adjoint import Adjoint
from steadygrad.solution import SteadyStateError


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
        adjoint.outer = adjoint.size_of(cotangents) if ctx.level == ctx.levels else None
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
