"""(I − J)⁻¹ and its transpose as an autograd Function that every transform of torch passes through.

It is linear, so its derivative in either mode is itself or its transpose, and a batch of right-hand sides is more of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor

from steadygrad.gradient.adjoint import LAST_DIGITS, Adjoint
from steadygrad.gradient.several import several_times
from steadygrad.state.ragged import RaggedLayout
from steadygrad.update.levels import Level, functorch

P = ParamSpec("P")
R = TypeVar("R")

EXTRA = 0
"""In the place of a level's number: a dimension of right-hand sides, of a vmap that came after the solve."""


@dataclass(frozen=True)
class Task:
    """What is asked of one application.

    "attach" is zero with the derivative of the Newton correction (I − J)⁻¹ (F(h) − h), J frozen at h*; "first" is what the
    first derivative of that asks for; "solve" what all others do.
    """

    kind: Literal["attach", "first", "solve"]
    transpose: bool = False
    """(I − J) instead of (I − Jᵀ)."""
    attachment: int = 1
    """Which of how many: attachments count from the innermost, 1."""
    attachments: int = 1
    dims: tuple[int, ...] = ()
    """The leading dimensions of the tensors: numbers of levels, or EXTRA."""

    def derived(self, forward: bool) -> Task:
        """The task of the derivative: in forward mode the same map, in reverse mode its transpose."""
        if self.kind == "attach":
            return replace(self, kind="first", transpose=forward)
        return replace(self, kind="solve", transpose=self.transpose == forward)


@dataclass
class FrozenSystem:
    """The frozen linear system of one steady state, with the vmaps whose entries are its problems."""

    adjoint: Adjoint
    own: tuple[Level, ...] = ()
    _outer: dict[bool, tuple[float, float]] = field(default_factory=dict[bool, "tuple[float, float]"], init=False)
    """By `transpose`: the size of what the first of several attachments has just solved for, and the residual it left."""

    def __post_init__(self) -> None:
        layout, sizes = self.adjoint.jacobian.layout, [level.size for level in self.own]
        # Made here, below all levels: what is made inside of one belongs to it.
        self._anchors = [torch.zeros(sizes[: i + 1], dtype=layout.dtype, device=layout.device) for i in range(len(sizes))]

    def anchor(self, dims: tuple[int, ...]) -> Tensor | None:
        """A tensor that is batched at those of the own levels which are not among the dimensions yet.

        torch leaves out a level where no operand is batched; but where J is, so is the result.
        """
        pending = [level for level in self.own if level.number not in dims]
        if not pending:
            return None
        anchor = self._anchors[len(pending) - 1]  # the innermost go first
        for level in pending:
            anchor = functorch._add_batch_dim(anchor, 0, level.number)
        return anchor

    def carry_out(self, task: Task, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The task for plain tensors."""
        if task.kind == "attach":
            return [torch.zeros_like(part) for part in tensors]
        order = sorted(range(len(task.dims)), key=lambda i: task.dims[i])  # EXTRA first, then the levels, outermost first
        back = [order.index(i) for i in range(len(order))]
        extra = task.dims.count(EXTRA)
        moved = [part.permute([*order, *range(len(order), part.dim())]) for part in tensors]
        copies = moved[0].shape[:extra]
        solved = self._solve(task, [part.reshape(copies.numel(), *part.shape[extra:]) for part in moved], extra > 0)
        found = [part.reshape((*copies, *part.shape[1:])) for part in solved]
        return [part.permute([*back, *range(len(back), part.dim())]).contiguous() for part in found]

    def _solve(self, task: Task, b: list[Tensor], several: bool) -> list[Tensor]:
        """z for some right-hand sides, each of them all problems; zero where that is no more than another solve left over."""
        main = task.attachment == (1 if task.transpose else task.attachments)
        last = task.attachment == (task.attachments if task.transpose else 1)
        rests = task.kind == "first" and task.attachments > 1
        if rests and not main:
            size, residual = self._outer.get(task.transpose, (0.0, 0.0))
            if last:
                self._outer.pop(task.transpose, None)
            if self.adjoint.size_of(b) <= (2 * residual + LAST_DIGITS) * size:
                return [torch.zeros_like(part) for part in b]
        z, residual = self._certified(task.transpose, b, several)
        if rests and main:
            self._outer[task.transpose] = (self.adjoint.size_of(b), residual)
        return z

    def _certified(self, transpose: bool, b: list[Tensor], several: bool) -> tuple[list[Tensor], float]:
        """z, and its relative residual; the certificate is left in the record."""
        record, before = self.adjoint.record, self.adjoint.record.last
        divided = self.adjoint.shards is not None  # vmap knows no collectives
        if several and not divided and not isinstance(self.adjoint.jacobian.layout, RaggedLayout):
            found = several_times(self.adjoint, len(b[0])).solve(b, transpose)
        else:
            one_by_one = [self.adjoint.solve([part[i] for part in b], transpose) for i in range(len(b[0]))]
            found = [torch.stack(parts) for parts in zip(*one_by_one, strict=True)]
        assert record.last is not None, "a solve leaves its certificate"
        residual = record.last.residual
        if transpose:
            record.tangent, record.last = record.last, before
        return found, residual


def batched(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors may be those of a vmap, of torch.func or the older one: then they have no numbers to decide by."""
    return functorch.peek_interpreter_stack() is not None or any(map(functorch.is_legacy_batchedtensor, tensors))


def to_the_front(size: int, tensors: Sequence[Tensor], dims: Sequence[int | None]) -> list[Tensor]:
    """Tensors with the dimension of a vmap in front; where one has none it is the same for all entries."""
    return [
        part.expand(size, *part.shape) if dim is None else part.movedim(dim, 0) for part, dim in zip(tensors, dims, strict=True)
    ]


def apply(system: FrozenSystem, task: Task, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The task for the tensors of a state, at whatever level they are."""

    def call(tensors: Sequence[Tensor], extra: int) -> Any:
        here = replace(task, dims=(EXTRA,) * extra + task.dims) if extra else task
        return Inverse.apply(system, here, system.anchor(here.dims), *tensors)

    return below_the_older_vmap(call, tensors)


def below_the_older_vmap(call: Callable[[Sequence[Tensor], int], Any], tensors: Sequence[Tensor]) -> list[Tensor]:
    """`call` of tensors without the dimension of torch's older vmap, or with it in front, as the second argument tells.

    By that vmap `is_grads_batched=True` and `vectorize=True` run. It knows no rules of Functions, and loses their place in the
    graph: its dimension is taken off and put back by hand.
    """
    one = next((part for part in tensors if functorch.is_legacy_batchedtensor(part)), None)
    if one is None:
        return list(call(tensors, 0))
    older: Any = torch  # private names, all of them
    level = older._C._vmapmode_increment_nesting() - 1
    older._C._vmapmode_decrement_nesting()
    size = older._remove_batch_dim(one, level, 1, 0).shape[0]
    plain = [older._remove_batch_dim(part, level, size, 0) for part in tensors]
    return [older._add_batch_dim(part, 0, level) for part in call(plain, 1)]


def signed(forward: Callable[P, R]) -> Callable[P, R]:
    """The forward of a Function with its signature kept, which torch would work out anew in every call."""
    marked: Any = forward
    marked.__signature__ = inspect.signature(forward)
    return forward


class Inverse(torch.autograd.Function):
    """A task of a system, to be called by `apply`."""

    @staticmethod
    @signed
    def forward(system: FrozenSystem, task: Task, anchor: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(system.carry_out(task, tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.system, ctx.task = inputs[:2]

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        return (None, None, None, *apply(ctx.system, ctx.task.derived(forward=False), cotangents))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        return tuple(apply(ctx.system, ctx.task.derived(forward=True), tangents[3:]))

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any, in_dims: Any, system: FrozenSystem, task: Task, anchor: Tensor | None, *tensors: Tensor
    ) -> Any:
        number = (functorch.maybe_current_level() or 0) + 1  # this runs below the level that it is for
        own = any(level.number == number for level in system.own) and number not in task.dims
        moved = to_the_front(info.batch_size, tensors, in_dims[3:])
        found = apply(system, replace(task, dims=(number if own else EXTRA, *task.dims)), moved)
        return tuple(found), tuple(0 for _ in found)
