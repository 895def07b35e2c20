"""What a solver has to say of itself: how to start, how to take a step, and what the state it has reached is worth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from steadygrad.failure import SteadyStateError
from steadygrad.iteration.norms import Numbers
from steadygrad.state.tree import map_tensors, tensors_in

if TYPE_CHECKING:
    from steadygrad.iteration.gain import Gains


class Forecast(NamedTuple):
    """What a look tells of the problems that are still open."""

    step: int
    left: float
    """Steps to the tolerance, of the slowest, at the rate of late; infinite where a residual does not fall."""
    grown: float
    """The residual of the worst, over its first."""
    decades: float
    """The logarithm of how much too large the largest residual still is."""


class Iteration(ABC):
    """An iteration on matrices with a row a problem; the driver does the rest.

    A state is a NamedTuple of tensors whose first dimension counts the problems (nested tuples and plain numbers may be
    among its fields). The driver decides when to look at it, and leaves out problems that have ended by indexing it, so a
    solver keeps nothing of a problem anywhere else. `problem` is what is solved: for a forward solver the update, called as
    `problem(h)`; for an adjoint solver a `System` with `b`, `vjp(v)` and `jvp(v)`.
    """

    @abstractmethod
    def init(self, problem: Any, start: Tensor) -> Any:
        """The state before the first step."""

    @abstractmethod
    def step(self, problem: Any, state: Any) -> Any:
        """The state after one more step."""

    @abstractmethod
    def value(self, state: Any) -> Tensor:
        """The iterate, (problems, size)."""

    def vector(self, state: Any) -> Tensor:
        """The iterate as its norm is taken of it: of any shape if there is one problem."""
        return self.value(state)

    @abstractmethod
    def residual(self, state: Any) -> Tensor | None:
        """What is left: a vector a problem (of any shape if there is one); None before it is known.

        An adjoint solver that has a `gain` of its own may give the norm, as a column.
        """

    def point(self, state: Any) -> Tensor:
        """Where that residual was taken: at the value, unless a solver returns what lies one step ahead of it."""
        return self.value(state)

    def progress(self, state: Any) -> Tensor | None:
        """What the stop is judged by, where that is not the residual (a solver that is asked for something else)."""
        return self.residual(state)

    def gain(self, state: Any) -> Numbers | Gains | None:
        """An estimate of ‖error‖ / ‖residual‖, (problems,), or how to work it out, from solvers that have one of their own."""
        return None

    @property
    def chained(self) -> bool:
        """Whether, in a linear equation, every residual is Jᵀ times the one before, and the step from its point to the next."""
        return False

    def anchors(self, state: Any) -> tuple[tuple[Tensor, Tensor], ...]:
        """Earlier points with the residuals there, from solvers whose last steps do not tell the distance by themselves."""
        return ()

    def keep_for_value(self, state: Any) -> Any:
        """What is to be kept of a state so that its value can be told later; less than all where a state holds more."""
        return state

    def keep_for_residual(self, state: Any) -> Any:
        """What is to be kept of a state so that its point and residual can be told later; less where a state holds more."""
        return state

    def turn(self, problem: Any, state: Any, forecast: Forecast) -> Any:
        """The state to go on with after a look at which some problems stay open; solvers of several phases change here."""
        return state

    def cheap(self, state: Any) -> bool:
        """Whether the next steps are no more than a call of F or a product each, so that a look costs more than one of them."""
        return False

    def at_once(self, problem: Any, state: Any) -> int:
        """In what numbers steps can be taken at once by `several`: 1 for any number, 0 for one step at a time."""
        return getattr(problem, "at_once", 0) if type(self).several is not Iteration.several else 0

    def several(self, problem: Any, state: Any, steps: int) -> list[Any]:
        """The last states of so many steps taken at once, the newest last; for solvers whose `at_once` is not 0."""
        raise NotImplementedError(f"{type(self).__name__} takes one step at a time.")

    def measured(self, problem: Any) -> Any:
        """After `several`, where a problem of one tensor has measured its states on the way: what it found, as `Measured`."""
        return None


def several_of(state: Any, rows: Tensor) -> Any:
    """The state of some of the problems."""
    return map_tensors(lambda tensor: tensor[rows], state)


def first_step(solver: Iteration, problem: Any, state: Any, shape: torch.Size, dtype: torch.dtype) -> Any:
    """The first step of a solver that takes them one by one, to an iterate of that shape: what the driver needs is checked."""
    held = [(tensor, tensor._version) for tensor in tensors_in(state) if not tensor.is_inference()]
    after = solver.step(problem, state)
    if any(tensor._version != version for tensor, version in held):
        raise SteadyStateError(
            f"{solver!r} has changed its state in place: a step must leave what it was given as it is (r = r − q, not r −= q), "
            "since the last states tell the error."
        )
    check_state(solver, after, shape[0])
    value = solver.value(after)
    if value.shape != shape or value.dtype is not dtype:
        raise SteadyStateError(
            f"{solver!r} has a value of shape {tuple(value.shape)} and {value.dtype} after a start of shape {tuple(shape)} and "
            f"{dtype}; value(state) must give the iterate as the start was given."
        )
    return after


def check_state(solver: Iteration, state: Any, problems: int) -> None:
    """Refuse a state that cannot be indexed by problem, in words of who writes a solver."""
    for tensor in tensors_in(state):
        if tensor.dim() < 2 or len(tensor) != problems:
            raise SteadyStateError(
                f"the state of {solver!r} holds a tensor of shape {tuple(tensor.shape)} for {problems} problems; the first "
                "dimension of every tensor in it counts the problems: (problems, size) for vectors, (problems, 1) for numbers."
            )
    if not tensors_in(state):
        raise SteadyStateError(
            f"the state of {solver!r}, a {type(state).__name__}, holds no tensor where the driver looks: it must be a "
            "NamedTuple, tuple, list or dict of tensors."
        )
