"""On which data the last step, the F of an implicit hypergradient, is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steadygrad.method import Method, check_count

AVERAGED = 8
"""Mini-batches over which an implicit hypergradient is averaged unless something else is asked for."""


@dataclass(frozen=True, repr=False)
class Last(Method):
    """The batch of the last training step as it comes: right where every step sees the same data.

    >>> Last()
    Last()
    """


@dataclass(frozen=True, eq=False, repr=False)
class Full(Method):
    """This batch, normally all training data: F is then the deterministic map whose steady state is the minimum.

    One evaluation with a graph on the whole batch, and as many products. What the code released with Liao et al. 2018 does.

    >>> Full(["all", "data"]).batch
    ['all', 'data']
    """

    batch: Any

    def __repr__(self) -> str:
        return "Full(...)"


@dataclass(frozen=True, repr=False)
class Average(Method):
    """The mean of the hypergradients of `count` mini-batches, each with its own adjoint solve; with its variance.

    What the text of Liao et al. 2018 says. The mean of (I−J)⁻¹ is not the inverse of the mean, so a bias of the order of the
    variance of J stays however large the count is; `Full` and `Fresh` have none. Of a list no more than it has.

    >>> Average(4)
    Average(count=4)
    """

    count: int = AVERAGED

    def __post_init__(self) -> None:
        check_count("count", self.count, least=1)


@dataclass(frozen=True, repr=False)
class Fresh(Method):
    """A new mini-batch for every term of the Neumann series, `count` times over; with its variance.

    z = Σ_{k≤K} J_kᵀ … J_1ᵀ b with independent J_i estimates Σ (E[J]ᵀ)ᵏ E[b] without bias, given independent batches, in the
    memory of one mini-batch. Needs `Implicit(Neumann(steps=K))`. K+2 evaluations with a graph a time.
    Agarwal, Bullins and Hazan 2017 (LiSSA); Ji, Yang and Liang 2021 (stocBiO).

    >>> Fresh()
    Fresh()
    """

    count: int = AVERAGED

    def __post_init__(self) -> None:
        check_count("count", self.count, least=1)


Samples = Last | Full | Average | Fresh
