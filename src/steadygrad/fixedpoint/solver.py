"""What all fixed-point solvers share: their stop, their trace, and what they return."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from steadygrad.iteration import Ended, Goal, Iteration, drive
from steadygrad.method import Method, check_count, check_number

TRUSTED = 1e-2
"""An iterate whose estimated distance from the solution exceeds this is not called converged, however small its residual."""
REMEMBERED = 6
"""States from which the error is estimated where the last step alone would see one direction: more hardly help, and each takes
memory."""
COARSE = 16.0
"""In half precision one per cent is out of reach: there, so many roundings."""


@cache
def trusted_in(precision: torch.dtype) -> float:
    """The largest estimated distance from the solution with which an iterate passes for converged."""
    return max(TRUSTED, COARSE * torch.finfo(precision).eps)


@dataclass(frozen=True, repr=False)
class FixedPointSolver(Method, Iteration, ABC):
    """An iteration for h = F(h) that stops once ‖F(h) − h‖ ≤ rtol·‖h‖ + atol in every leaf of the state.

    A state that is estimated to be further than one per cent from the steady state is not converged, however little it
    moves. `rtol=0` takes exactly `max_steps` steps, as the paper does; residuals are then taken every tenth step and at
    the last. A tolerance below the precision of the dtype is raised to it.
    """

    max_steps: int = 100
    rtol: float = 1e-5
    atol: float = 0.0

    def __post_init__(self) -> None:
        check_count("max_steps", self.max_steps, least=1)
        check_number("rtol", self.rtol)
        check_number("atol", self.atol)
        if not (0 <= self.rtol < 1):
            raise ValueError(f"rtol must be at least 0 (0: take exactly max_steps steps) and below 1; got {self.rtol}.")
        if self.atol < 0:
            raise ValueError(f"atol must not be negative; got {self.atol}.")
        if self.atol > 0 and self.counts:
            raise ValueError("rtol=0 takes exactly max_steps steps, so atol would be ignored; give a small rtol with it.")

    @property
    def counts(self) -> bool:
        """Whether an exact number of steps was asked for."""
        return self.rtol == 0

    @property
    def remembered(self) -> int:
        """States kept for the estimate of the distance: two of the plain iteration, more where steps are extrapolated."""
        return 2 if type(self).point is not Iteration.point else REMEMBERED

    exact_residual: ClassVar[bool] = False
    """Whether the residual is F(h) − h as it was evaluated at the value: on the adjoint equation no product confirms it then."""
    calls: ClassVar[int] = 1
    """Evaluations of F a step."""

    def carried(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """What a step depends on, the value last, given what F was evaluated at last, the newest first.

        Of solvers whose steps can be unrolled; before their first step `inputs` is the start, twice.
        """
        raise NotImplementedError(f"{type(self).__name__} is not unrolled.")

    def resumed(self, carried: tuple[Tensor, ...]) -> Any:
        """A state from which the next step can be taken."""
        raise NotImplementedError(f"{type(self).__name__} is not unrolled.")

    def reached(self, state: Any) -> tuple[Tensor, ...]:
        """What the step after a state would depend on, the value last."""
        raise NotImplementedError(f"{type(self).__name__} is not unrolled.")

    def advanced(self, problem: Any, carried: tuple[Tensor, ...], steps: int) -> tuple[Tensor, ...]:
        """What is carried so many steps later; `problem` is an `Update`."""
        for _ in range(steps):
            carried = self.reached(self.step(problem, self.resumed(carried)))
        return carried

    def solve(
        self,
        problem: Callable[[Tensor], Tensor],
        start: Tensor,
        sizes: tuple[int, ...] | None = None,
        precision: torch.dtype | None = None,
        divide: bool = False,
        wanted: frozenset[int] = frozenset(),
    ) -> Ended:
        """Iterate from a start to the stop; gradients are recorded if they are enabled.

        `sizes` are the columns of the leaves of the state, `precision` the dtype in which F computes. With `divide` rows
        that have ended are left out where the problem allows it; `wanted` are steps whose iterates are wanted too.
        """
        rounding = torch.finfo(precision or start.dtype).eps
        goal = Goal(
            limit=self.max_steps,
            rtol=None if self.counts else max(self.rtol, rounding),
            atol=self.atol,
            sizes=sizes or (start.shape[1],),
            trusted=trusted_in(precision or start.dtype),
            rounding=rounding,
            remembered=self.remembered,
            reach=reach_of if hasattr(problem, "part") else None,
        )
        return drive(self, problem, start, goal, divide, wanted)


ANCHORS = 3
"""Earlier states that an accelerated solver keeps, at steps 1, 2, 4, 8, …, of these the last: within a factor of three of the
true gain on linear problems of conditions up to 1e4 in float32, where the last six steps alone miss up to thirty."""


class Anchors(NamedTuple):
    """The states of some earlier steps, (h, F(h) − h): the long way from there shows slow directions that single steps hide."""

    step: int = 0
    kept: tuple[tuple[Tensor, Tensor], ...] = ()

    def after(self, h: Tensor, f: Tensor) -> Anchors:
        """With a step that began at h, which is kept if it is its turn."""
        turn = self.step & (self.step - 1) == 0
        return Anchors(self.step + 1, (*self.kept, (h, f))[-ANCHORS:] if turn else self.kept)


NUDGE = 1e-3
"""Relative change of the state that shows how F changes with it: small beside what F is defined on, far above rounding."""


def reach_of(problem: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """How F changes where the state changes by its own size, to first order, from two evaluations."""
    with torch.no_grad():
        return (problem(h * (1 + NUDGE)) - problem(h)) / NUDGE
