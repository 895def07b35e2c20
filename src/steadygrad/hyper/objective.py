"""The objective at the end of training: its value and its derivatives, part by part, and what they say of the hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadygrad.hyper.problem import Hyper, Inner, with_gradient
from steadygrad.hyper.result import Gradients
from steadygrad.solution import SteadyStateError
from steadygrad.state import State


def value_of(inner: Inner, state: State, hyper: Hyper, see: Callable[[Tensor], None] | None = None) -> Tensor:
    """The objective at a state; `see` gets every part of it while the model has this state."""

    def whole(given: Any, values: Hyper) -> Tensor:
        found = inner.objective(given, dict(values))
        value: Tensor | None = None
        for part in found if isinstance(found, Iterator) else (found,):
            number = _number(part)
            if see is not None:
                see(number)
            value = total(value, number.detach())
        if value is None:
            raise ValueError("objective yielded no part: is the validation set empty, or an iterator that is used up?")
        return value

    return whole(state, hyper) if inner.trainer is None else inner.trainer.evaluate(whole, state, hyper)


def _number(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.dtype.is_floating_point:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(
            f"objective must return one number as a tensor, or yield such numbers; got {got}. Take a mean, and keep it a tensor."
        )
    return value.reshape(())


@dataclass
class Slope:
    """∂L/∂h_T and the direct ∂L/∂θ of the objective, with its value."""

    value: Tensor
    state: list[Tensor]
    direct: Gradients

    def gradients(self, through: Sequence[Tensor | None]) -> Gradients:
        """dL/dθ by name: what comes through the steps, one a hyperparameter, and the direct part."""
        return {name: total(own, g) for own, (name, g) in zip(through, self.direct.items(), strict=True)}


def slope(inner: Inner, state: State) -> Slope:
    """Differentiate the objective at a state: one backward pass through it alone, part by part."""
    moving, carried = inner.split.part(state)
    leaves = [leaf.detach().requires_grad_() for leaf in moving]
    hyper = with_gradient(inner.hyper)
    inputs = [*leaves, *hyper.values()]
    grads: list[Tensor | None] = [None] * len(inputs)

    def differentiate(part: Tensor) -> None:
        if part.requires_grad:
            grads[:] = map(total, grads, _grad(part, inputs))

    with torch.enable_grad():
        value = value_of(inner, inner.split.join(leaves, carried), hyper, differentiate)
    inner.check_finite(state, value)
    if all(grad is None for grad in grads[: len(leaves)]):
        raise SteadyStateError(
            "the objective does not depend on the trained state: is there a detach() or no_grad() in it, or does it use only "
            "buffers?"
        )
    state_grads = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(grads, leaves, strict=False)]
    return Slope(value, state_grads, dict(zip(hyper, grads[len(leaves) :], strict=True)))


def _grad(part: Tensor, inputs: list[Tensor]) -> Sequence[Tensor | None]:
    try:
        return torch.autograd.grad(part, inputs, allow_unused=True)
    except RuntimeError as error:
        if "second time" not in str(error):
            raise
        raise ValueError(
            "two parts of the objective share a computation, whose graph is gone after the first; yield what they share as a "
            "part of its own, or compute it anew for each."
        ) from error


def pull(
    images: Sequence[Tensor], cotangents: Sequence[Tensor], inputs: Iterable[Tensor], keep_graph: bool = False
) -> list[Tensor | None]:
    """The vector-Jacobian product with respect to each input; None where nothing depends on it."""
    inputs = list(inputs)
    moved = [(image, v) for image, v in zip(images, cotangents, strict=True) if image.requires_grad]
    if not moved:
        return [None] * len(inputs)
    outputs, given = zip(*moved, strict=True)
    return list(torch.autograd.grad(outputs, inputs, given, retain_graph=keep_graph, allow_unused=True))


def total(*parts: Tensor | None) -> Tensor | None:
    """The sum of what is there; None if nothing is."""
    there = [part for part in parts if part is not None]
    return sum(there[1:], start=there[0]) if there else None
