"""ARTBP: back-propagation through a random number of steps, compensated to be unbiased."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from steadygrad.fixedpoint import Picard
from steadygrad.gradient.problem import Gradient, Problem, Solved
from steadygrad.gradient.unrolled import picard_of, unroll_tail
from steadygrad.state.shards import of_first

Truncation = Literal["uniform", "poisson"]


@dataclass(frozen=True, repr=False)
class ARTBP(Gradient):
    """Anticipated reweighted truncated back-propagation: an unbiased estimate of the BPTT gradient.

    One number of steps N ≤ T = `forward.max_steps` is drawn a solve, and the gradient that passes the t-th boundary from
    the end is divided by P(N > t | N ≥ t), so that every term is divided by its chance to be seen. `truncation="uniform"`
    draws N from {1, …, T}; `"poisson"` from a Poisson law of the given `mean` cut to {1, …, T} (Liao et al. 2018 cut near
    step 95 of 100, five from the end: `mean=5`). Variance is the price: average over many solves. Tallec and Ollivier 2017.
    """

    truncation: Truncation = "uniform"
    mean: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.truncation not in get_args(Truncation):
            raise ValueError(f'truncation must be "uniform" or "poisson"; got {self.truncation!r}.')
        if (self.truncation == "poisson") != (self.mean is not None):
            raise ValueError('give mean with truncation="poisson", and only there.')
        if self.mean is not None and not self.mean > 0:
            raise ValueError(f"mean must be positive; got {self.mean}.")

    def probabilities(self, total: int) -> Tensor:
        """P(N = 1), …, P(N = total)."""
        counts = torch.arange(1, total + 1, dtype=torch.float64, device="cpu")
        if self.mean is None:
            return torch.full_like(counts, 1 / total)
        return torch.softmax(counts * math.log(self.mean) - torch.lgamma(counts + 1), dim=0)

    def solve(self, problem: Problem) -> Solved:
        steps, factors = self.draw(picard_of(problem, self))

        def compensate(t: int, h: Tensor) -> Tensor:
            return _Scale.apply(h, factors[t]) if t in factors and h.requires_grad else h

        return unroll_tail(problem, self, steps, compensate)

    def draw(self, forward: Picard) -> tuple[int, dict[int, float]]:
        """The number N of steps to go back over, and what the gradient is multiplied by that leaves the t-th from the end.

        It goes on into the (t+1)-th only if N > t.
        """
        if forward.damping:
            raise ValueError(f"ARTBP compensates each application of F and takes no damping; got {forward!r}.")
        chances = self.probabilities(forward.max_steps)
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        steps = of_first(int(torch.multinomial(chances, 1, generator=generator)) + 1)
        at_least = chances.flip(0).cumsum(0).flip(0)  # P(N ≥ t) at index t − 1
        return steps, {t: float(at_least[t - 1] / at_least[t]) for t in range(1, steps)}


class _Scale(torch.autograd.Function):
    """The identity with a gradient multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.factor * grads[0], None
