"""The inner problem: a training step as the update F, what of its state moves, and the loss at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from steadygrad.hyper.batches import Batches
from steadygrad.method import check_callable
from steadygrad.solution import SteadyStateError
from steadygrad.state import Layout, State, in_order, leaves_of, map_state, structure_of
from steadygrad.state.tree import alike, fill, template_of
from steadygrad.update.attention import differentiable_attention
from steadygrad.update.levels import functorch

Hyper = dict[str, Tensor]
Step = Callable[[State, Hyper, Any], State]
"""One step of training, `step(state, hyper, batch) -> state`: the update F."""
Objective = Callable[[Any, Hyper], Tensor | Iterator[Tensor]]
"""The loss to lower: `objective(model, hyper)` for the optimisers here, `objective(state, hyper)` for a step of one's own. One
number, or a generator of parts whose sum it is, which share no computation: each is differentiated before the next is made, so
that memory holds one."""
Observe = Callable[[int, State], None]


class NonfiniteError(SteadyStateError):
    """Training, its loss or its hypergradient left the finite numbers; `tune` rejects such a step.

    >>> from steadygrad import hyper
    >>> def step(h, hyper, batch): return hyper["rate"] * h * h
    >>> try:
    ...     hyper.hypergradient(step, {"rate": 9.0}, lambda h, hyper: h.sum(), batches=[None], steps=9, state=torch.ones(1))
    ... except NonfiniteError as error:
    ...     print(str(error).split(".")[0])
    training left the finite numbers within 9 steps
    """


@runtime_checkable
class Trainer(Protocol):
    """A step that knows its model: where it starts, how to evaluate it, and what it only carries along."""

    carried: frozenset[str]

    def __call__(self, state: State, hyper: Hyper, batch: Any) -> State: ...
    def initial(self) -> State: ...
    def evaluate(self, objective: Callable[[Any, Hyper], Any], state: State, hyper: Hyper) -> Any: ...
    def at_rest(self) -> Step | None: ...


@dataclass(frozen=True)
class Split:
    """Which tensors of a training state move, and so belong to the hidden state, and which are only carried along.

    Carried are tensors that are not floating point (counters) and those under a key that the step names in `carried`
    (buffers): no gradient passes through them.
    """

    template: State
    moves: tuple[bool, ...]

    @classmethod
    def of(cls, state: State, step: Step) -> Split:
        carried = step.carried if isinstance(step, Trainer) else frozenset[str]()
        moves: list[bool] = []
        parts = state.items() if isinstance(state, dict) else [("", state)]
        for key, part in parts:
            leaves = leaves_of(part)
            if key not in carried and any(leaf.is_complex() for leaf in leaves):
                raise TypeError("the state has complex tensors, which are not supported; keep them as real ones (view_as_real).")
            moves += [leaf.dtype.is_floating_point and key not in carried for leaf in leaves]
        if not any(moves):
            raise TypeError("the state has no floating-point tensor that training could move.")
        return cls(template_of(state), tuple(moves))

    def part(self, state: State) -> tuple[list[Tensor], list[Tensor]]:
        """The tensors that move, and those that are carried."""
        leaves = in_order(self.template, state)
        moving = [leaf for leaf, moves in zip(leaves, self.moves, strict=True) if moves]
        return moving, [leaf.detach() for leaf, moves in zip(leaves, self.moves, strict=True) if not moves]

    def join(self, moving: Sequence[Tensor], carried: Sequence[Tensor]) -> State:
        """The state of such tensors."""
        a, b = iter(moving), iter(carried)
        return fill(self.template, (next(a) if moves else next(b) for moves in self.moves))


def _check_state(state: State, own: State) -> None:
    if not alike(state, own):
        raise TypeError(f"state is {structure_of(state):.300}; this step needs one like its initial(): {structure_of(own):.300}.")
    for leaf, expected in zip(in_order(template_of(own), state), leaves_of(own), strict=True):
        if leaf.shape != expected.shape:
            raise ValueError(f"state has a tensor of shape {tuple(leaf.shape)} where the model has {tuple(expected.shape)}.")


def start_of(step: Step, state: State | None) -> State:
    """The state that training starts from: as given, or that of the model."""
    if state is not None:
        return state
    if not isinstance(step, Trainer):
        raise TypeError("a step of your own needs state=..., the state that training starts from.")
    return step.initial()


@dataclass(frozen=True)
class Inner:
    """T steps of training from one start, with the objective at their end."""

    step: Step
    state: State
    hyper: Hyper
    objective: Objective
    batches: Batches
    steps: int
    split: Split
    observe: Observe | None = None

    @classmethod
    def of(
        cls, step: Step, hyper: Mapping[str, Any], objective: Objective, batches: Batches, steps: int, state: State | None
    ) -> Inner:
        check_callable("step", step, "step(state, hyper, batch)")
        check_callable("objective", objective)
        if state is not None and isinstance(step, Trainer):
            _check_state(state, step.initial())
        state = start_of(step, state)
        split = Split.of(state, step)
        moving, carried = split.part(state)
        Layout.of(tuple(moving))  # refuses what has no flat form, with a message
        start = split.join([leaf.detach().clone() for leaf in moving], [leaf.clone() for leaf in carried])  # it may work in place
        return cls(step, start, tensors(hyper, moving[0]), objective, batches, steps, split)

    @cached_property
    def trainer(self) -> Trainer | None:
        """The step, if it is one that knows its model. Kept, since asking a protocol takes as long as a small step."""
        return self.step if isinstance(self.step, Trainer) else None

    @property
    def first(self) -> Tensor:
        """The first tensor that moves: its dtype and device are those of training."""
        return self.split.part(self.state)[0][0]

    def advance(self, state: State, batch: Any, hyper: Hyper | None = None) -> State:
        """F on a state; with a graph if gradients are enabled."""
        values = dict(self.hyper if hyper is None else hyper)
        if self.trainer is not None:
            new = self.step(state, values, batch)
        else:
            with attention_for_a_graph():
                new = self.step(map_state(lambda leaf: leaf, state), values, batch)  # it may put new tensors into its dicts
        if not alike(new, state):
            raise TypeError(
                f"step returned {structure_of(new)} for a state of {structure_of(state)}; it must keep the structure."
            )
        return new

    def show(self, t: int, state: State) -> None:
        if self.observe is not None:
            self.observe(t, map_state(Tensor.detach, state))

    def check_finite(self, state: State, value: Tensor) -> None:
        moving, _ = self.split.part(state)
        if not all(bool(leaf.isfinite().all()) for leaf in moving):
            raise NonfiniteError(
                f"training left the finite numbers within {self.steps} steps. Lower the learning rates, or give tune a smaller "
                "outer rate."
            )
        if not bool(value.isfinite()):
            raise NonfiniteError(f"the objective is {value.item()} after training, although the state is finite.")


def tensors(hyper: Mapping[str, Any], like: Tensor) -> Hyper:
    """The hyperparameters as detached tensors; plain numbers become tensors of the state's dtype."""
    if not isinstance(hyper, Mapping) or not hyper:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f'hyper must be a dict such as {{"decay": torch.tensor(1e-3)}}; got {hyper!r:.80}.')
    found: Hyper = {}
    for name, value in hyper.items():
        tensor = tensor_of(value, like)
        if tensor is None:
            hint = " Constraints are for tune; give its value." if hasattr(value, "constrained") else ""
            raise TypeError(f"hyper[{name!r}] must be a number or a tensor; got {value!r:.60}.{hint}")
        if not tensor.dtype.is_floating_point or tensor.numel() == 0:
            raise TypeError(f"hyper[{name!r}] must be floating point and not empty; got {tensor.dtype} of {tuple(tensor.shape)}.")
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"hyper[{name!r}] is not finite.")
        found[name] = tensor
    return found


def tensor_of(value: Any, like: Tensor) -> Tensor | None:
    """A tensor as a constant; a number or a list as a tensor like that one; None for anything else."""
    if isinstance(value, Tensor):
        return value.detach()
    known = isinstance(value, (float, int, list, tuple))
    return torch.as_tensor(value, dtype=like.dtype, device=like.device) if known else None


def with_gradient(hyper: Hyper) -> Hyper:
    """The hyperparameters as leaves that need a gradient."""
    return {name: value.detach().requires_grad_() for name, value in hyper.items()}


def transformed() -> bool:
    """Whether this runs inside torch.func.grad, jvp, vmap and the like.

    >>> transformed()
    False
    """
    return functorch.peek_interpreter_stack() is not None


def attention_for_a_graph() -> AbstractContextManager[Any]:
    """torch's plain kernel for attention where a graph is kept: the fused ones have no second derivative, and J needs it.

    >>> with attention_for_a_graph():
    ...     _ = torch.nn.functional.scaled_dot_product_attention(*torch.zeros(3, 1, 2, 4).unbind())
    """
    if not (torch.is_grad_enabled() or transformed()):
        return nullcontext()
    # Inside a compiled step torch's own context is traced; ours, which threads share, has a lock that cannot be.
    return sdpa_kernel(SDPBackend.MATH) if torch.compiler.is_compiling() else differentiable_attention()
