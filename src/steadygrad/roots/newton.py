"""Newton–Krylov: solve the linearised equation at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.iteration.norms import Numbers
from steadygrad.linear import GMRES, AdjointSolver
from steadygrad.linear.units import sizes_of, solved_in_units, units_of
from steadygrad.solution import Status
from steadygrad.state import State, structure_of
from steadygrad.state.rows import norm
from steadygrad.state.tree import combine
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian

HALVINGS = 8
"""How often a step that does not shrink the residual is halved."""


class Stepped(NamedTuple):
    """A state, F(h) − h or −∇E(h) there, and how far it is from the end, as a vector; None before the first step."""

    h: Tensor
    f: Tensor
    left: Tensor | None


class NewtonLike(FixedPointSolver):
    """A solver whose residual is what is left to go, in the units of h: the distance itself, so that two states tell it."""

    @property
    def remembered(self) -> int:
        return 2

    def value(self, state: Any) -> Tensor:
        return state.h

    def residual(self, state: Any) -> Tensor | None:
        return state.left


@dataclass(frozen=True, repr=False)
class Newton(NewtonLike):
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
        update = differentiable(problem)
        sizes = sizes_of(update, state.h)
        units = 1.0 if sizes is None else 1 / units_of(sizes, state.f, update.layout)
        d, left = newton_step(update, self.linear, state.h, state.f, sizes)
        size = norm(state.f * units)

        def grew(f: Tensor) -> Tensor:
            return ~(norm(f * units) < size) & (size > 0)

        return Stepped(*halved(state.h, d, lambda h: problem(h) - h, grew, HALVINGS), left)


def differentiable(problem: Callable[[Tensor], Tensor]) -> Update:
    """The update, for solvers that need more of it than its values."""
    if not isinstance(problem, Update):
        raise TypeError(f"this solver needs the derivatives of F and cannot work on {problem!r}; use it as a forward solver.")
    return problem


def newton_step(
    update: Update, linear: AdjointSolver, h: Tensor, f: Tensor, sizes: Numbers | None = None
) -> tuple[Tensor, Tensor]:
    """d with (I − J) d = f, and what is left to go: d itself, or more than h where d is not to be had.

    With `sizes`, those of the leaves, in their units: J is then no longer symmetric where it was.
    """
    operator, units = solved_in_units(Jacobian(update, h), sizes, f, transpose=True)
    solved = linear.solve(operator, f if units is None else f * units)
    d = solved.z if units is None else solved.z / units
    found = torch.tensor([[status is Status.CONVERGED] for status in solved.status], device=h.device)
    return torch.where(found, d, torch.zeros_like(h)), torch.where(found, d, far_from(h, f))


def far_from(h: Tensor, f: Tensor) -> Tensor:
    """What is left to go where nothing is known of it: more than any tolerance accepts; NaN where F is."""
    return torch.where(f.isfinite().all(dim=1, keepdim=True), 1 + h.abs(), torch.full_like(h, torch.nan))


def halved(
    h: Tensor, d: Tensor, at: Callable[[Tensor], Tensor], worse: Callable[[Tensor], Tensor], halvings: int
) -> tuple[Tensor, Tensor]:
    """h + t·d for the largest t of 1, ½, ¼, … whose f = at(h + t·d) is not worse, row by row, and that f."""
    t = torch.ones_like(h[:, :1])
    new = h + d
    f = at(new)
    for _ in range(halvings):
        bad = worse(f)
        if not bad.any():
            break
        t = torch.where(bad, t / 2, t)
        new = h + t * d
        f = at(new)
    return new, f


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
        return combine(_difference, h, value)


def _difference(h: Tensor, value: Tensor) -> Tensor:
    if h.shape != value.shape:
        raise ValueError(
            f"g returned shape {tuple(value.shape)} for a state of shape {tuple(h.shape)}; there must be as many equations as "
            "unknowns."
        )
    return h - value
