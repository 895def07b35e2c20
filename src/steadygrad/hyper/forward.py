"""Hypergradients by forward mode: tangents carried along with training, exact over all steps in constant memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadygrad.hyper.objective import Slope, slope
from steadygrad.hyper.problem import Hyper, Inner, with_gradient
from steadygrad.hyper.result import Estimate
from steadygrad.method import Method
from steadygrad.solution import SteadyStateError
from steadygrad.state import State
from steadygrad.update.double import DoubleBackward

MANY = 16
"""Tangents from which torch.func.jvp, all at once, is faster than transposed VJPs, one by one. Measured on small networks."""
ROUNDINGS = 1e3
"""Roundings by which torch.func and transposed VJPs may differ: they sum in another order."""


@dataclass(frozen=True, repr=False)
class Forward(Method):
    """Forward mode: Ṡ ← J Ṡ + ∂F/∂θ beside every step, then dL/dθ = ∂L/∂h · Ṡ + ∂L/∂θ. Exact over all steps.

    Memory is one state for each single hyperparameter, whatever the number of steps; so is the work: about one further step
    each. The right tool for a few learning rates and momenta, converged or not. The products come from transposed VJPs, which
    work wherever double backward does; of many tangents from `torch.func.jvp`, where it agrees with them at the first step.
    Franceschi et al. 2017; Williams and Zipser 1989 (RTRL).

    >>> from steadygrad import hyper
    >>> def step(h, hyper, batch): return hyper["rate"] * h
    >>> hyper.hypergradient(step, {"rate": 2.0}, lambda h, hyper: h.sum(), batches=[None], steps=3, state=torch.ones(1),
    ...                     method=Forward()).gradients  # d rate³/d rate
    {'rate': tensor(12.)}
    """


class Point(NamedTuple):
    """A state on the way, with its tangents, one direction a row."""

    moving: list[Tensor]
    carried: list[Tensor]
    tangents: list[Tensor]


def forward(inner: Inner) -> Estimate:
    """Train with tangents in all directions."""
    state, tangents, end = _train(inner, _unit_tangents(inner.hyper))
    along = _towards(tangents, end)
    through: list[Tensor | None] = []
    start = 0
    for value in inner.hyper.values():
        stop = start + value.numel()
        moves = any(bool(s[start:stop].any()) for s in tangents)
        through.append(along[start:stop].reshape(value.shape) if moves else None)
        start = stop
    return Estimate(state, end.value, [end.gradients(through)])


def agreement(inner: Inner, gradients: Mapping[str, Tensor], random: Tensor) -> float | None:
    """(dL(h_T)/dθ · g) / ‖g‖², the exact derivative along the hypergradient g by forward mode: 1 if it is right.

    Trains once more, from the same random state, with one tangent beside it: about twice the time of BPTT, in flat memory.
    """
    size = sum(float(g.square().sum()) for g in gradients.values())
    if not size:
        return None
    unit = {name: g / math.sqrt(size) for name, g in gradients.items()}
    with torch.random.fork_rng():
        torch.set_rng_state(random)
        _, tangents, end = _train(replace(inner, observe=None), [unit[name].unsqueeze(0) for name in inner.hyper])
        direct = sum(float((g * unit[name]).sum()) for name, g in end.direct.items() if g is not None)
        return (float(_towards(tangents, end)) + direct) / math.sqrt(size)


def _train(inner: Inner, seeds: list[Tensor]) -> tuple[State, list[Tensor], Slope]:
    """Train with tangents; the hyperparameters' own are given, one direction a row."""
    stream, count = inner.batches.stream(), len(seeds[0])
    moving, carried = inner.split.part(inner.state)
    at = Point(moving, carried, [leaf.new_zeros(count, *leaf.shape) for leaf in moving])
    push = _by_transpose
    for t in range(inner.steps):
        batch = next(stream)
        if t == 0 and count >= MANY and _jvp_is_right(inner, at, seeds, batch):
            push = _by_jvp
        at = push(inner, at, seeds, batch)
        inner.show(t + 1, inner.split.join(at.moving, at.carried))
    state = inner.split.join(at.moving, at.carried)
    return state, at.tangents, slope(inner, state)


def _towards(tangents: list[Tensor], end: Slope) -> Tensor:
    """∂L/∂h · Ṡ, a number a direction."""
    return torch.stack([(s * g).reshape(len(s), -1).sum(1) for s, g in zip(tangents, end.state, strict=True)]).sum(0)


def _unit_tangents(hyper: Hyper) -> list[Tensor]:
    """For each hyperparameter tensor, its tangents in all directions, one direction a row."""
    count = sum(value.numel() for value in hyper.values())
    first = next(iter(hyper.values()))
    unit = torch.eye(count, dtype=first.dtype, device=first.device)
    parts = unit.split([value.numel() for value in hyper.values()], dim=1)
    return [part.reshape(count, *v.shape).to(v) for part, v in zip(parts, hyper.values(), strict=True)]


def _jvp_is_right(inner: Inner, at: Point, seeds: list[Tensor], batch: Any) -> bool:
    """Whether torch.func agrees with transposed VJPs at this step, with random tangents of the state; no draw is used up."""
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(s.shape, generator=generator, dtype=torch.float64, device="cpu").to(s) for s in at.tangents]
    reference = _by_transpose(inner, at._replace(tangents=drawn), seeds, batch)
    try:
        torch.set_rng_state(before)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*torch.jit.*", DeprecationWarning)  # torch's own, at its first jvp
            found = _by_jvp(inner, at._replace(tangents=drawn), seeds, batch)
    except (RuntimeError, NotImplementedError, ValueError, TypeError):  # torch.func cannot do this step; the other way can
        return False
    finally:
        torch.set_rng_state(before)
    pairs = zip((*found.moving, *found.tangents), (*reference.moving, *reference.tangents), strict=True)
    return all(_close(a, b) for a, b in pairs)


def _by_jvp(inner: Inner, at: Point, seeds: list[Tensor], batch: Any) -> Point:
    """One step with its tangents, all at once, by torch.func."""
    names, split = list(inner.hyper), inner.split

    def step(leaves: tuple[Tensor, ...], values: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        new = inner.advance(split.join(leaves, at.carried), batch, dict(zip(names, values, strict=True)))
        moving, carried = split.part(new)
        return tuple(moving), tuple(carried)

    def one(leaves: tuple[Tensor, ...], values: tuple[Tensor, ...]) -> Any:
        point = (tuple(at.moving), tuple(inner.hyper.values()))
        return torch.func.jvp(step, point, (leaves, values), has_aux=True)

    with torch.no_grad():
        shared: Any = (None, 0, None)  # the state and what is carried do not depend on the direction
        mapped = torch.func.vmap(one, out_dims=shared, randomness="same")
        new, pushed, kept = mapped(tuple(at.tangents), tuple(seeds))
    return Point(list(new), list(kept), list(pushed))


def _by_transpose(inner: Inner, at: Point, seeds: list[Tensor], batch: Any) -> Point:
    """One step, and Jv by differentiating u ↦ Jᵀu, which is linear in u: one linearisation for all tangents."""
    leaves, hyper = [leaf.detach().requires_grad_() for leaf in at.moving], with_gradient(inner.hyper)
    with torch.enable_grad():
        new, kept = inner.split.part(inner.advance(inner.split.join(leaves, at.carried), batch, hyper))
    graph = _transposed(new, [*leaves, *hyper.values()])
    directions = [*at.tangents, *seeds]
    pushed = [leaf.new_zeros(len(seeds[0]), *leaf.shape) for leaf in new]
    for j in range(len(seeds[0])):
        for rows, row in zip(pushed, graph.push([direction[j] for direction in directions]), strict=True):
            if row is not None:
                rows[j] = row
    return Point([leaf.detach() for leaf in new], kept, pushed)


def _transposed(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> DoubleBackward:
    if not any(output.requires_grad for output in outputs):
        raise SteadyStateError("the step depends on neither its state nor the hyperparameters: is it under no_grad()?")
    try:
        return DoubleBackward.of(outputs, inputs)
    except RuntimeError as error:
        raise SteadyStateError(
            f"forward mode needs a second derivative that the step does not have ({str(error).splitlines()[0]}); use "
            '"neumann-rbp" or a truncated method.'
        ) from error


def _close(a: Tensor, b: Tensor) -> bool:
    tolerance = ROUNDINGS * torch.finfo(a.dtype).eps
    return bool((a - b).norm() <= tolerance * max(float(b.norm()), torch.finfo(a.dtype).tiny))
