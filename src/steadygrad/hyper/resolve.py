"""What the arguments `method` and `last` stand for, and which of them do not go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steadygrad.api import SHORTHANDS, resolve_gradient
from steadygrad.gradient import BPTT, TBPTT, Gradient, Implicit
from steadygrad.hyper.batches import Batches
from steadygrad.hyper.forward import Forward
from steadygrad.hyper.memory import check_memory
from steadygrad.method import Method, check_count, unknown

HyperMethod = str | Gradient | Forward
"""A way to a hypergradient, or a shorthand for one."""
Differentiated = Implicit | BPTT | TBPTT | Forward
"""The ways to a hypergradient that there are."""
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


def asked_for(method: HyperMethod | None, memory: float | None, last: Samples | None, batches: Batches) -> Differentiated | None:
    """The method that the caller names; None where the choice is left open. Refuses what does not go together."""
    check_memory(memory)
    if method is not None:
        if memory is not None:
            raise ValueError(f"memory={memory} is for method=None, which chooses by it; {method!r} would ignore it.")
        return resolve_method(method)
    if last is not None:
        check_samples(last, batches)
    if isinstance(last, Fresh):
        raise ValueError("last=Fresh(m) needs a Neumann series of a given length: give method=Implicit(Neumann(steps=K)).")
    return None


def resolve_method(method: HyperMethod) -> Differentiated:
    """The method that a shorthand stands for.

    >>> resolve_method("neumann-rbp")
    Implicit(Neumann(steps=20))
    """
    if method == "forward" or isinstance(method, Forward):
        return Forward()
    if isinstance(method, str) and method not in SHORTHANDS:
        raise unknown("method", method, ["forward", *SHORTHANDS])
    resolved = resolve_gradient(method)
    if not isinstance(resolved, (Implicit, BPTT, TBPTT)):
        raise ValueError(
            f'{resolved!r} is not available for hypergradients; use "auto", "forward", "bptt", TBPTT or Implicit(...).'
        )
    return resolved


def resolve_samples(method: Differentiated, last: Samples | None, batches: Batches) -> Samples:
    """The data on which an implicit method takes the last step: as asked for, or by what the batches are.

    >>> resolve_samples(resolve_method("auto"), None, Batches.of(["a", "b"]))
    Average(count=2)
    """
    many = batches.distinct
    if last is None:
        return Last() if many == 1 else Average(AVERAGED if many is None else min(AVERAGED, many))
    if not isinstance(method, Implicit):
        raise ValueError(
            f"last={last!r} is for implicit methods; {method!r} differentiates the steps as they were and ignores it."
        )
    check_samples(last, batches)
    return last


def check_samples(last: Samples, batches: Batches) -> None:
    """Refuse what is no choice of data, and more batches than a list has."""
    many = batches.distinct
    if not isinstance(last, (Last, Full, Average, Fresh)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"last must be Full(batch), Average(m), Fresh(m) or Last(); got {last!r:.60}.")
    if isinstance(last, Average) and many is not None and last.count > many:
        raise ValueError(
            f"last=Average({last.count}) takes {last.count} batches, but batches is a list of {many}: some would count twice "
            f"as if they were new. Take at most Average({many}), or last=Full(batch) with all data; or, if the model draws anew "
            "each time (dropout), give a function that cycles: lambda t: data[t % len(data)]."
        )
