"""The exact gradient of the steps that were taken, without having kept their graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.gradient.closure import Closure
from steadygrad.gradient.inverse import batched
from steadygrad.gradient.problem import Problem, Solved, own_constants, own_leaves
from steadygrad.iteration import Ended
from steadygrad.solution import AdjointRecord, OnFailure, SteadyStateError
from steadygrad.state.shards import Shards, current, sharing
from steadygrad.update import Update
from steadygrad.update.autocast import without_autocast

Carried = tuple[Tensor, ...]
"""What of a solver's state the next step depends on, each (problems, size); the last of them is the value."""


@dataclass
class Steps(ABC):
    """The steps of one solve, to be gone back over.

    x_{t+1} = S(x_t) for t < T, with x what the solver carries from step to step. Each problem has its own end T_i ≤ T, so
    its cotangent enters at T_i; and other outputs (`iterates=`) enter where they were taken.
    """

    update: Update
    forward: FixedPointSolver
    on_failure: OnFailure
    total: int
    """T, the steps of the longest problem."""
    outputs: list[Any]
    """For each output the step, a problem, at which it was taken."""
    closure: Closure
    released: bool = field(default=False, init=False)
    shards: Shards | None = field(default_factory=current, init=False)
    """How the state is divided over processes, when the backward pass comes."""

    @abstractmethod
    def back(self, at_end: dict[int, Tensor]) -> Carried:
        """The cotangents of x₀, given those of the values at some steps; those of the closure are left in its sums."""

    @abstractmethod
    def release(self) -> None:
        """Forget what the way back needs."""

    def pull(self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Back through a graph of F: the cotangents of the inputs; those of the closure are added to its sums."""
        moved = [(out, v) for out, v in zip(outputs, cotangents, strict=True) if out.requires_grad]
        if not moved:
            return [torch.zeros_like(leaf) for leaf in inputs]
        images, given = zip(*moved, strict=True)
        self.closure.refuse_strays(images, inputs)
        wanted: list[Any] = [*inputs, *self.closure.inputs]
        found: list[Any] = list(torch.autograd.grad(images, wanted, given, allow_unused=True))
        self.closure.add(found[len(inputs) :])
        return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=False)]

    def gradient(self, cotangents: Sequence[Tensor]) -> Tensor:
        """The cotangent of the start, from those of the outputs."""
        if self.released:
            raise RuntimeError(
                "Trying to backward through the steps of a solve a second time, when what was kept of them is gone. Specify "
                "retain_graph=True the first time."
            )
        self.closure.check()
        self.closure.clear()
        with without_autocast(self.update.layout.device), sharing(self.shards):
            first, *others = self.back(self._by_step(cotangents))
        if not torch._C._autograd._get_current_graph_task_keep_graph():  # pyright: ignore[reportAttributeAccessIssue]
            self.released = True
            self.release()
        return sum(others, start=first)  # all that is carried starts as h₀

    def _by_step(self, cotangents: Sequence[Tensor]) -> dict[int, Tensor]:
        found: dict[int, Tensor] = {}
        for steps, cotangent in zip(self.outputs, cotangents, strict=True):
            for step in numpy.unique(steps).tolist():
                mask = torch.from_numpy(steps == step).to(cotangent.device).unsqueeze(1)
                part = cotangent if bool(mask.all()) else cotangent * mask
                found[step] = found[step] + part if step in found else part
        return found


class Taken(torch.autograd.Function):
    """The outputs of a solve, whose backward goes back over its steps.

    Its inputs are the start and F at the last state; what it hands to the latter is nothing: see `Closure`.
    """

    @staticmethod
    def forward(ctx: Any, steps: Steps, values: list[Tensor], start: Tensor, *images: Tensor) -> tuple[Tensor, ...]:
        ctx.steps = steps
        ctx.images = [(image.shape, image.dtype, image.device) for image in images]
        return tuple(value.clone() for value in values)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        steps: Steps = ctx.steps
        if batched(cotangents):
            raise SteadyStateError(ONE_BY_ONE)
        with torch.no_grad():
            z = steps.gradient([cotangent.detach() for cotangent in cotangents])
        nothing = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.images]
        if torch.is_grad_enabled():
            sums = steps.closure.sums
            there = [i for i, found in enumerate(sums) if found is not None]
            z, *guarded = First.apply(1 + len(there), z, *(sums[i] for i in there), *cotangents, *steps.closure.outputs)
            for i, found in zip(there, guarded, strict=True):
                sums[i] = found
        return (None, None, z, *nothing)


class First(torch.autograd.Function):
    """Lets first derivatives pass and refuses to be differentiated: on whatever F or the loss depends, so do they."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        raise SteadyStateError(SECOND)


ONE_BY_ONE = (
    "steps whose graphs were not kept are gone back over for one cotangent at a time: leave out is_grads_batched=True, "
    "vectorize=True or the vmap around torch.autograd.grad, or use BPTT() without checkpoints, or an implicit gradient."
)

SECOND = (
    "a second derivative was asked for through steps whose graphs were not kept; the first ones are right. Use BPTT() without "
    "checkpoints and with forward=Picard(...), or an implicit gradient with derivatives=2."
)


class Watched:
    """F as the forward solver calls it; `keep(t, x)` is shown what each step depends on, before it is taken."""

    def __init__(self, problem: Problem, keep: Callable[[int, Carried], None]) -> None:
        self._update, self._forward, self._keep = problem.update, problem.forward, keep
        start = problem.start.detach()
        self._inputs: Carried = (start, start)
        self._calls = 0

    def __call__(self, flat: Tensor) -> Tensor:
        self._inputs = (flat, self._inputs[0])
        step, within = divmod(self._calls, self._forward.calls)
        self._calls += 1
        if within == 0:
            self._keep(step, self._forward.carried(self._inputs))
        return self._update(flat)

    @property
    def last(self) -> Tensor:
        """Where F was evaluated last."""
        return self._inputs[0]

    def solve(self, iterates: frozenset[int]) -> Ended:
        """The search for the steady state, without a graph."""
        layout, precision = self._update.layout, self._update.precision
        with torch.no_grad():
            return self._forward.solve(self, self._inputs[0], layout.sizes, precision, wanted=iterates)


def output_steps(ended: Ended) -> list[Any]:
    """For each output, the value first, the step at which each problem's was taken."""
    ends = numpy.full(ended.value.shape[0], ended.steps) if ended.ends is None else ended.ends
    return [ends, *(numpy.minimum(step, ends) for step in ended.iterates)]


def closure_at(update: Update, value: Tensor) -> Closure:
    """What F depends on besides the state, from its graph at one."""

    def linearise() -> tuple[list[Tensor], list[Tensor]]:
        probes = [leaf.detach().requires_grad_() for leaf in update.layout.split(value)]
        return probes, update.linearise(probes, twice=False)

    return Closure(linearise)


def attached(problem: Problem, ended: Ended, steps: Steps) -> Solved:
    """What a solve gives back, with the gradient of its steps."""
    values = [ended.value, *ended.iterates.values()]
    with torch.enable_grad():
        flat = Taken.apply(steps, values, problem.start, *steps.closure.outputs)
        leaves = [own_leaves(problem, value) for value in flat]
    iterates = dict(zip(ended.iterates, leaves[1:], strict=True))
    return Solved(leaves[0], ended, AdjointRecord(), iterates)


def constant(problem: Problem, ended: Ended) -> Solved:
    """What a solve gives back where nothing needs a gradient."""
    iterates = {step: own_constants(problem, value) for step, value in ended.iterates.items()}
    return Solved(own_constants(problem, ended.value), ended, AdjointRecord(), iterates)
