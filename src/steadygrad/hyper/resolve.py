"""What the arguments `method` and `last` stand for, and which of them do not go together."""

from __future__ import annotations

import difflib

from steadygrad.api import SHORTHANDS, resolve_gradient
from steadygrad.gradient import BPTT, TBPTT, Gradient, Implicit
from steadygrad.hyper.batches import Batches
from steadygrad.hyper.forward import Forward
from steadygrad.hyper.samples import AVERAGED, Average, Fresh, Full, Last, Samples

HyperMethod = str | Gradient | Forward
"""A way to a hypergradient, or a shorthand for one."""
Differentiated = Implicit | BPTT | TBPTT | Forward
"""The ways to a hypergradient that there are."""


def resolve_method(method: HyperMethod) -> Differentiated:
    """The method that a shorthand stands for.

    >>> resolve_method("neumann-rbp")
    Implicit(Neumann(steps=20))
    """
    if method == "forward" or isinstance(method, Forward):
        return Forward()
    if isinstance(method, str) and method not in SHORTHANDS:
        known = ["forward", *SHORTHANDS]
        near = difflib.get_close_matches(method.lower(), known, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown method {method!r}.{hint} Known: {', '.join(known)}.")
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


def check_left_open(last: Samples | None, batches: Batches) -> None:
    """Refuse data for the last step that not every method that may be chosen could use."""
    if last is None:
        return
    check_samples(last, batches)
    if isinstance(last, Fresh):
        raise ValueError("last=Fresh(m) needs a Neumann series of a given length: give method=Implicit(Neumann(steps=K)).")
