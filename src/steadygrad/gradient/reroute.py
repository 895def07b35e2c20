"""The autograd Functions that give a steady state its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from steadygrad.gradient.adjoint import Adjoint
from steadygrad.gradient.inverse import FrozenSystem, Task, apply, batched, below_the_older_vmap, signed, to_the_front
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
        chosen = adjoint.select(cotangents)
        z = apply(FrozenSystem(adjoint), Task("solve"), chosen) if batched(chosen) else adjoint.solve(chosen)
        if torch.is_grad_enabled():
            z = _once(len(z), [*z, *cotangents, *adjoint.jacobian.outputs])
        return (None, None, *z)


class Once(torch.autograd.Function):
    """Lets z pass and refuses to be differentiated.

    z depends on the cotangent and, through J and h*, on whatever F depends on, so both are inputs: a second derivative
    by either way arrives here, whether the loss is linear or not.
    """

    @staticmethod
    @signed
    def forward(count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(z.clone() for z in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass  # nothing is kept: there is no derivative

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        raise SteadyStateError(_BEYOND.format("second derivative", 1, 2))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        raise SteadyStateError(_BEYOND.format("second derivative", 1, 2))

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any, in_dims: Any, count: int, *tensors: Tensor
    ) -> Any:
        return Once.apply(count, *to_the_front(info.batch_size, tensors, in_dims[1:])), (0,) * count


def _once(count: int, tensors: list[Tensor]) -> list[Tensor]:
    def call(tensors: Sequence[Tensor], extra: int) -> Any:
        return Once.apply(count, *tensors)

    return below_the_older_vmap(call, tensors)


_BEYOND = (
    "{} of a steady state asked for, beyond the derivatives={} that this solve declared; the lower ones are right. "
    "Declare derivatives={}. (A steady state inside the F of another needs it too where the outer solver multiplies by J; "
    'gradient="neumann-rbp" does not.)'
)


def attach_often(
    system: FrozenSystem, orders: int, out: list[Tensor], images: list[Tensor], image: Callable[[list[Tensor]], list[Tensor]]
) -> list[Tensor]:
    """The tensors of h* with `orders` exact derivatives, given F(h*) as `images`, with its graph, and F as `image`.

    Each attachment out ← out + (I − J)⁻¹ (F(out) − out), J frozen at h*, is a Newton step, so n of them make n derivatives
    exact. The value stays h*.
    """
    for i in range(1, orders + 1):
        images = images if i == 1 else image(out)
        gaps = [after - before for after, before in zip(images, out, strict=True)]
        zeros = apply(system, Task("attach", attachment=i, attachments=orders), gaps)
        out = [part + zero for part, zero in zip(out, zeros, strict=True)]
    passed: Any = Guard.apply(0, orders, len(out), *out, *images)
    return list(passed)


class Guard(torch.autograd.Function):
    """Counts the derivatives that pass, in either mode, and refuses the one after the last declared.

    Its derivative applies it again to the cotangent, or tangent, and to anchors that depend on whatever F depends on, so that
    the next derivative meets it whether the loss is linear or not.
    """

    @staticmethod
    @signed
    def forward(order: int, limit: int, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.order, ctx.limit, ctx.count = inputs[:3]
        anchors = inputs[3 + ctx.count :]
        ctx.save_for_backward(*anchors)
        ctx.save_for_forward(*anchors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        _refuse_beyond(ctx)
        anchors: Sequence[Tensor] = ctx.saved_tensors
        nothing = [None] * len(anchors)
        if not torch.is_grad_enabled():
            return (None, None, None, *cotangents, *nothing)
        zeros = [] if ctx.order == 0 else [torch.zeros_like(anchor) for anchor in anchors]
        guarded = [*cotangents, *zeros]
        passed = _guarded(ctx, len(guarded), [*guarded, *anchors])
        return (None, None, None, *passed, *(nothing if ctx.order == 0 else []))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        _refuse_beyond(ctx)
        return Guard.apply(ctx.order + 1, ctx.limit, ctx.count, *tangents[3 : 3 + ctx.count], *ctx.saved_tensors)

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any, in_dims: Any, order: int, limit: int, count: int, *tensors: Tensor
    ) -> Any:
        moved = to_the_front(info.batch_size, tensors, in_dims[3:])
        return Guard.apply(order, limit, count, *moved), (0,) * count


def _guarded(ctx: Any, count: int, tensors: list[Tensor]) -> list[Tensor]:
    """The first `count` tensors, to be guarded one order higher than a guard that was just passed."""

    def call(tensors: Sequence[Tensor], extra: int) -> Any:
        return Guard.apply(ctx.order + 1, ctx.limit, count, *tensors)

    return below_the_older_vmap(call, tensors)


def _refuse_beyond(ctx: Any) -> None:
    if ctx.order == ctx.limit:
        raise SteadyStateError(_BEYOND.format(f"derivative {ctx.limit + 1}", ctx.limit, ctx.limit + 1))
