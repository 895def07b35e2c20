"""Hypergradients by forward mode: tangents carried along with training, exact over all steps in constant memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadygrad.hyper.estimate import Estimate, Gradients
from steadygrad.hyper.objective import Slope, slope, total
from steadygrad.hyper.problem import Hyper, Inner
from steadygrad.method import Method
from steadygrad.solution import SteadyStateError
from steadygrad.state import State

MANY = 16
"""Tangents from which torch.func.jvp, all at once, is faster than transposed VJPs, one by one. Measured on small networks."""


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


def forward(inner: Inner) -> Estimate:
    """Train with tangents in all directions."""
    state, tangents, end = _train(inner, _unit_tangents(inner.hyper))
    along = _towards(tangents, end)
    grads: Gradients = {}
    start = 0
    for name, value in inner.hyper.items():
        stop = start + value.numel()
        through = None if all(not bool(s[start:stop].any()) for s in tangents) else along[start:stop].reshape(value.shape)
        grads[name] = total(through, end.direct[name])
        start = stop
    return Estimate(state, end.value, [grads])


def derivative_along(inner: Inner, direction: Mapping[str, Tensor]) -> float:
    """dL(h_T)/dθ · v, exactly, for one direction v of the hyperparameters: one tangent, whatever their number."""
    _, tangents, end = _train(inner, [direction[name].unsqueeze(0) for name in inner.hyper])
    direct = [float((g * direction[name]).sum()) for name, g in end.direct.items() if g is not None]
    return float(_towards(tangents, end)) + sum(direct)


def _train(inner: Inner, seeds: list[Tensor]) -> tuple[State, list[Tensor], Slope]:
    """Train with tangents; the hyperparameters' own are given, one direction a row."""
    stream = inner.batches.stream()
    moving, carried = inner.split.part(inner.state)
    tangents = [leaf.new_zeros(len(seeds[0]), *leaf.shape) for leaf in moving]
    push = _Push(inner, len(seeds[0]))
    for t in range(inner.steps):
        moving, tangents, carried = push(moving, carried, tangents, seeds, next(stream))
        inner.show(t + 1, inner.split.join(moving, carried))
    state = inner.split.join(moving, carried)
    return state, tangents, slope(inner, state)


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


Pushed = tuple[list[Tensor], list[Tensor], list[Tensor]]


class _Push:
    """One step with its tangents, by the fastest way that is right for this step."""

    def __init__(self, inner: Inner, count: int) -> None:
        self.inner = inner
        self.fast: bool | None = None if count >= MANY else False

    def __call__(
        self, moving: list[Tensor], carried: list[Tensor], tangents: list[Tensor], seeds: list[Tensor], batch: Any
    ) -> Pushed:
        if self.fast is None:
            return self._choose(moving, carried, tangents, seeds, batch)
        return (self._by_jvp if self.fast else self._by_transpose)(moving, carried, tangents, seeds, batch)

    def _choose(
        self, moving: list[Tensor], carried: list[Tensor], tangents: list[Tensor], seeds: list[Tensor], batch: Any
    ) -> Pushed:
        """Both ways at the first step, with random tangents of the state; torch.func is believed where it agrees."""
        before = torch.get_rng_state()
        generator = torch.Generator().manual_seed(0)
        drawn = [torch.randn(s.shape, generator=generator, dtype=torch.float64, device="cpu").to(s) for s in tangents]
        where = (moving, carried, drawn, seeds, batch)
        reference = self._by_transpose(*where)
        try:
            torch.set_rng_state(before)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*torch.jit.*", DeprecationWarning)  # torch's own, at its first jvp
                found = self._by_jvp(*where)
            self.fast = all(_close(a, b) for a, b in zip((*found[0], *found[1]), (*reference[0], *reference[1]), strict=True))
        except (RuntimeError, NotImplementedError, ValueError, TypeError):  # torch.func cannot do this step; the other way can
            self.fast = False
        torch.set_rng_state(before)
        return self(moving, carried, tangents, seeds, batch)

    def _by_jvp(
        self, moving: list[Tensor], carried: list[Tensor], tangents: list[Tensor], seeds: list[Tensor], batch: Any
    ) -> Pushed:
        names = list(self.inner.hyper)

        def step(leaves: tuple[Tensor, ...], values: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
            state = self.inner.split.join(leaves, carried)
            new = self.inner.advance(state, batch, dict(zip(names, values, strict=True)))
            parts = self.inner.split.part(new)
            return tuple(parts[0]), tuple(parts[1])

        def one(leaves: tuple[Tensor, ...], values: tuple[Tensor, ...]) -> Any:
            point = (tuple(moving), tuple(self.inner.hyper.values()))
            return torch.func.jvp(step, point, (leaves, values), has_aux=True)

        with torch.no_grad():
            shared: Any = (None, 0, None)  # the state and what is carried do not depend on the direction
            mapped = torch.func.vmap(one, out_dims=shared, randomness="same")
            new, pushed, kept = mapped(tuple(tangents), tuple(seeds))
        return list(new), list(pushed), list(kept)

    def _by_transpose(
        self, moving: list[Tensor], carried: list[Tensor], tangents: list[Tensor], seeds: list[Tensor], batch: Any
    ) -> Pushed:
        """Jv by differentiating u ↦ Jᵀu, which is linear in u: one linearisation for all tangents."""
        leaves = [leaf.detach().requires_grad_() for leaf in moving]
        hyper = {name: value.detach().requires_grad_() for name, value in self.inner.hyper.items()}
        with torch.enable_grad():
            new, kept = self.inner.split.part(self.inner.advance(self.inner.split.join(leaves, carried), batch, hyper))
            through = [i for i, leaf in enumerate(new) if leaf.requires_grad]
            probes = [torch.zeros_like(new[i], requires_grad=True) for i in through]
            inputs = [*leaves, *hyper.values()]
            pulled = _grad([new[i] for i in through], inputs, probes)
        used = [i for i, grad in enumerate(pulled) if grad is not None and grad.requires_grad]
        pushed = [leaf.new_zeros(len(seeds[0]), *leaf.shape) for leaf in new]
        directions = [*tangents, *seeds]
        for j in range(len(seeds[0])):
            rows: Sequence[Any] = torch.autograd.grad(
                [pulled[i] for i in used], probes, [directions[i][j] for i in used], retain_graph=True, allow_unused=True
            )
            for i, row in zip(through, rows, strict=True):
                if row is not None:  # pyright: ignore[reportUnnecessaryComparison]
                    pushed[i][j] = row
        return [leaf.detach() for leaf in new], pushed, kept


def _grad(outputs: Sequence[Tensor], inputs: Sequence[Tensor], probes: Sequence[Tensor]) -> list[Any]:
    if not outputs:
        raise SteadyStateError("the step depends on neither its state nor the hyperparameters: is it under no_grad()?")
    try:
        return list(torch.autograd.grad(outputs, inputs, probes, create_graph=True, allow_unused=True))
    except RuntimeError as error:
        raise SteadyStateError(
            f"forward mode needs a second derivative that the step does not have ({str(error).splitlines()[0]}); use "
            '"neumann-rbp" or a truncated method.'
        ) from error


def _close(a: Tensor, b: Tensor) -> bool:
    tolerance = 1e3 * torch.finfo(a.dtype).eps
    return bool((a - b).norm() <= tolerance * max(float(b.norm()), torch.finfo(a.dtype).tiny))
