"""Newton–Krylov: solve the linearised equation at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.linear import GMRES, AdjointSolver
from steadygrad.solution import Status
from steadygrad.state import State, structure_of
from steadygrad.state.rows import norm
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian, transposed

HALVINGS = 8
"""How often a step that does not shrink the residual is halved."""


class Stepped(NamedTuple):
    """A state, its residual F(h) − h, and the step that led to it; None before the first."""

    h: Tensor
    f: Tensor
    d: Tensor | None


@dataclass(frozen=True, repr=False)
class Newton(FixedPointSolver):
    """h ← h + t·d with (I − J) d = F(h) − h by a Krylov method. Quadratic near a root where I − J is invertible.

    Stops once ‖d‖ ≤ rtol·‖h‖ + atol: the step has the units of h, whatever those of g. A step that does not shrink the
    residual is halved. Costs one linear solve with J and one or more evaluations of F a step.

    >>> import torch, steadygrad as sg
    >>> solution = sg.steady_state(lambda h: -2 * h + 3, torch.zeros(1), forward=sg.Newton())  # ρ(J) = 2: no contraction
    >>> round(solution.value.item(), 4)
    1.0
    """

    max_steps: int = 30
    rtol: float = 1e-6
    linear: AdjointSolver = field(default=GMRES())

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.linear, AdjointSolver):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"linear must be a solver such as GMRES(); got {self.linear!r}.")

    def init(self, problem: Callable[[Tensor], Tensor], start: Tensor) -> Stepped:
        return Stepped(start, problem(start) - start, None)

    def step(self, problem: Callable[[Tensor], Tensor], state: Stepped) -> Stepped:
        d, left = newton_step(problem, self.linear, state.h, state.f)
        return Stepped(*_shortened(problem, state.h, d, state.f), left)

    @property
    def trail(self) -> int:
        return 2  # a step of Newton's is the distance itself

    def value(self, state: Stepped) -> Tensor:
        return state.h

    def residual(self, state: Stepped) -> Tensor | None:
        return state.d


def differentiable(problem: Callable[[Tensor], Tensor]) -> Update:
    """The update, for solvers that need more of it than its values."""
    if not isinstance(problem, Update):
        raise TypeError(f"this solver needs the derivatives of F and cannot work on {problem!r}; use it as a forward solver.")
    return problem


def newton_step(problem: Callable[[Tensor], Tensor], linear: AdjointSolver, h: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """d with (I − J) d = f, and what is left to go: d itself, or more than h where d is not to be had."""
    solved = linear.solve(transposed(Jacobian(differentiable(problem), h)), f)
    found = torch.tensor([[status is Status.CONVERGED] for status in solved.status], device=h.device)
    return torch.where(found, solved.z, torch.zeros_like(h)), torch.where(found, solved.z, far_from(h, f))


def far_from(h: Tensor, f: Tensor) -> Tensor:
    """What is left to go where nothing is known of it: more than any tolerance accepts; NaN where F is."""
    return torch.where(f.isfinite().all(dim=1, keepdim=True), 1 + h.abs(), torch.full_like(h, torch.nan))


def _shortened(problem: Callable[[Tensor], Tensor], h: Tensor, d: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """h + t·d for the largest t of 1, ½, ¼, … that shrinks the residual, row by row, and the residual there."""
    t = torch.ones_like(h[:, :1])
    size = norm(f)
    new = h + d
    after = problem(new) - new
    for _ in range(HALVINGS):
        grew = ~(norm(after) < size) & (size > 0)
        if not grew.any():
            break
        t = torch.where(grew, t / 2, t)
        new = h + t * d
        after = problem(new) - new
    return new, after


@dataclass(frozen=True)
class RootStep:
    """h − g(h): the update whose steady states are the roots of g."""

    g: Callable[..., State]

    def __call__(self, h: State, *args: Any) -> State:
        value = self.g(h, *args)
        if structure_of(value) != structure_of(h):
            raise TypeError(
                f"g returned {structure_of(value)} for a state of structure {structure_of(h)}; there must be as many equations "
                "as unknowns, in the same structure."
            )
        return combine(h, value, _difference)


def _difference(h: Tensor, value: Tensor) -> Tensor:
    if h.shape != value.shape:
        raise ValueError(
            f"g returned shape {tuple(value.shape)} for a state of shape {tuple(h.shape)}; there must be as many equations as "
            "unknowns."
        )
    return h - value


def combine(h: State, value: State, function: Callable[[Tensor, Tensor], Tensor]) -> State:
    """`function` of the tensors of two states of the same structure."""
    if isinstance(h, Tensor):
        return function(h, value)
    if isinstance(h, dict):
        return {key: combine(h[key], value[key], function) for key in h}  # pyright: ignore[reportUnknownVariableType]
    parts = [combine(a, b, function) for a, b in zip(h, value, strict=True)]
    if isinstance(h, list):
        return parts
    return type(h)(*parts) if hasattr(h, "_fields") else tuple(parts)
