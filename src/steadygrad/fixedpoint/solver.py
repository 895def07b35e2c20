"""What all fixed-point solvers share: their stop, their trace, and what they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.method import Method, check_count
from steadygrad.solution import Status
from steadygrad.watch import Iterates, Watch


@dataclass
class Outcome:
    """Where a search for h = F(h) ended, in flat form."""

    value: Tensor
    status: list[Status]
    steps: int
    residuals: list[tuple[int, float]]
    iterates: dict[int, Tensor]
    """The states at the steps asked for."""


@dataclass(frozen=True, repr=False)
class FixedPointSolver(Method, ABC):
    """An iteration for h = F(h) that stops once ‖F(h) − h‖ ≤ rtol·‖F(h)‖ + atol.

    `rtol=0` takes exactly `max_steps` steps, as the paper does; residuals are then taken every tenth step and at the last.
    """

    max_steps: int = 100
    rtol: float = 1e-5
    atol: float = 0.0

    def __post_init__(self) -> None:
        check_count("max_steps", self.max_steps, least=1)
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

    @abstractmethod
    def iterates(self, update: Callable[[Tensor], Tensor], h: Tensor) -> Iterates:
        """Yield the next state and the residual F(h) − h of the state before.

        What is sent back, if anything, is the list of rows to go on with.
        """

    def solve(
        self,
        update: Callable[[Tensor], Tensor],
        h: Tensor,
        drop: Callable[[list[int]], bool] | None = None,
        iterates: frozenset[int] = frozenset(),
    ) -> Outcome:
        """Iterate from h to the stop; gradients are recorded if they are enabled.

        `drop`, if given, is told which rows are left when others have ended; if it agrees, the update gets these only.
        """
        watch = Watch(lambda iterate: norms(iterate.formed()), self.max_steps, None if self.counts else self.rtol, self.atol)
        watch.drop, watch.wanted = drop, iterates
        kept = watch.follow(self.iterates(update, h))
        return Outcome(kept.formed(), watch.status, watch.step, watch.residuals, watch.seen)


def norms(h: Tensor) -> list[float]:
    """The 2-norm of each row."""
    return torch.linalg.vector_norm(h, dim=1).tolist()
