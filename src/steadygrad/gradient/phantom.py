"""The phantom gradient: a few damped steps, unrolled at the steady state."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.gradient.problem import Gradient, Problem, Solved, finite_part, own_constants, own_leaves, without_graph
from steadygrad.method import check_count
from steadygrad.solution import AdjointRecord
from steadygrad.state.shards import somewhere


@dataclass(frozen=True, repr=False)
class Phantom(Gradient):
    """Unroll h ← (1 − damping)·F(h) + damping·h for `steps` steps from h* and differentiate that.

    z = (1−d) Σ_{k<K} ((1−d)Jᵀ + d·I)ᵏ b: the Neumann series of the damped map, with memory for `steps` evaluations of F.
    The value stays h*. Geng et al. 2021, "On training implicit models".
    """

    steps: int = 5
    damping: float = 0.5

    def __post_init__(self) -> None:
        check_count("steps", self.steps, least=1)
        if not (0 <= self.damping < 1):
            raise ValueError(f"damping must be at least 0 and below 1; got {self.damping}.")

    def solve(self, problem: Problem) -> Solved:
        ended = without_graph(problem)
        attach = self._attached if torch.is_grad_enabled() else own_constants
        iterates = {step: attach(problem, state) for step, state in ended.iterates.items()}
        return Solved(attach(problem, ended.value), ended, AdjointRecord(), iterates)

    def _attached(self, problem: Problem, value: Tensor) -> list[Tensor]:
        at, rows = finite_part(problem, value)
        index = None if rows is None else torch.tensor(rows, device=value.device)
        update = problem.update if index is None else problem.update.of_rows(index)
        h = at
        for step in range(self.steps):
            image = update.layout.flatten(update.linearise(update.layout.split(h)))
            if step == 0 and not somewhere(image.requires_grad):
                return own_constants(problem, value)
            h = torch.lerp(image, h, self.damping)
        change = h - h.detach()
        if index is not None:
            change = torch.zeros_like(value).index_copy(0, index, change)
        return own_leaves(problem, value + change)
