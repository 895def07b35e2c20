"""Whether autograd sees all that a training step does: its derivatives against differences, and buffers that it cannot follow."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from steadygrad.diagnose.checks import Derivative, compare_derivative
from steadygrad.diagnose.scale import Scale
from steadygrad.hyper.objective import value_of
from steadygrad.hyper.optimiser import Descent, Optimiser
from steadygrad.hyper.problem import Hyper, Inner
from steadygrad.state import Layout, State, map_state
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian

WARM_UP = 10
"""Steps that may do nothing before the derivative of a step is looked at."""
SIGNAL = 1e-3
"""How much of a change F passes on, at least, for differences to show it above rounding."""
COARSE = 0.05
"""A mismatch that says nothing in float32, where one network in a thousand shows a percent by rounding."""
_seen: WeakKeyDictionary[Any, set[frozenset[str]]] = WeakKeyDictionary()
"""The steps that were looked at, with the names of the hyperparameters."""


def broken_at_first(inner: Inner) -> str | None:
    """`broken`, once for a step and the names of its hyperparameters; every time for a step that cannot be remembered."""
    try:
        names = _seen.setdefault(inner.step, set())
    except TypeError:  # no weak reference to it, or no hash
        return broken(inner)
    if (these := frozenset(inner.hyper)) in names:
        return None
    found = broken(inner)
    if found is None:
        names.add(these)
    return found


def broken(inner: Inner) -> str | None:
    """Words for a step whose derivative, as autograd sees it, is not that of the step; None if it is.

    (J − I)v, and in float64 ∂F/∂θ w, against central differences of F(h, θ) − h at the start of training, where a gradient
    taken without its graph shows even if the learning rate is small. Of the optimisers here only the gradient of the loss is
    in question, so plain descent stands for them. Some forty calls of F.
    """
    if isinstance(inner.step, Optimiser):
        descent = Descent(inner.step.model, inner.step.loss, rate=1.0)
        inner = Inner.of(descent, inner.hyper, inner.objective, inner.batches, 1, None)
    with torch.random.fork_rng():
        state, batch = _first_move(inner)
        exact = inner.first.dtype is torch.float64
        found = {"state": _compared(inner, state, batch, by_state=True)}
        if exact:  # elsewhere a small weight decay drowns in rounding
            other = _compared(inner, state, batch, by_state=False)
            found |= {"hyperparameters": other} if other.scale > SIGNAL else {}
    least = 0.0 if exact else COARSE
    wrong = {what: one.mismatch for what, one in found.items() if one.wrong and one.mismatch > least}
    for what, mismatch in wrong.items():
        where = _IN_A_STEP if inner.trainer is None else _IN_A_MODEL
        return (
            f"the derivative of a training step in its {what}, as autograd has it, differs from what the step does by "
            f"{mismatch:.0%}, so the hypergradient is wrong. {where}"
        )
    return None


def _compared(inner: Inner, state: State, batch: Any, by_state: bool) -> Derivative:
    """F(h, θ) − h as a map of h, or of θ, against its differences. Of the pair (h, θ), since a map has to keep its shape."""
    moving, carried = inner.split.part(state)
    names, count = list(inner.hyper), len(moving)

    def moved(given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        leaves = given[:count] if by_state else moving
        hyper: Hyper = inner.hyper if by_state else {n: v.to(inner.hyper[n]) for n, v in zip(names, given[count:], strict=True)}
        new, _ = inner.split.part(inner.advance(inner.split.join(leaves, carried), batch, hyper))
        return *(n - leaf for n, leaf in zip(new, leaves, strict=True)), *map(torch.zeros_like, given[count:])

    point = tuple(leaf.detach() for leaf in (*moving, *(value.to(moving[0]) for value in inner.hyper.values())))
    layout = Layout.of(point)
    update, h = Update(moved, (), layout), layout.flatten(point)
    update(h)  # from here on random draws are the same in every call
    return compare_derivative(update, Jacobian(update, h), h, Scale(layout, 0.0), torch.Generator().manual_seed(0))


def _first_move(inner: Inner) -> tuple[State, Any]:
    """The first state from which a step moves, and its batch: at a rate that warms up from zero no derivative shows."""
    stream, state = inner.batches.stream(), map_state(Tensor.clone, inner.state)  # a step may work in place
    batch: Any = None
    for _ in range(min(WARM_UP, inner.steps)):
        before, batch = map_state(Tensor.clone, state), next(stream)
        with torch.no_grad():
            state = inner.advance(state, batch)
        leaves, images = (inner.split.part(at)[0] for at in (before, state))
        if not all(torch.equal(leaf, image) for leaf, image in zip(leaves, images, strict=True)):
            return before, batch
    return map_state(Tensor.clone, inner.state), batch


_IN_A_STEP = (
    "Something in your step is hidden from autograd. With torch.autograd.grad inside, pass create_graph=torch.is_grad_enabled(); "
    "look for detach(), torch.no_grad(), .data, .item(), float() and numpy."
)
_IN_A_MODEL = (
    "Something in the model or its loss has no right second derivative (torch's weight_norm), keeps a buffer that follows the "
    "weights without a derivative (spectral_norm), or is hidden from autograd (detach(), no_grad(), .data, float()); write that "
    "part in plain operations, or leave it out. nn.Embedding(padding_idx=...) is such a part too, and harmless unless its weight "
    "is used elsewhere."
)


def following(inner: Inner, state: State) -> str | None:
    """Words for buffers that training has changed and that the objective uses, without a derivative; None if there are none."""
    if inner.trainer is None:
        return None
    moving, after = inner.split.part(state)
    _, before = inner.split.part(inner.state)
    changed = [i for i, leaf in enumerate(after) if leaf.dtype.is_floating_point and not torch.equal(leaf, before[i])]
    if not changed:
        return None
    leaves = [leaf.detach().requires_grad_(i in changed) for i, leaf in enumerate(after)]
    used: list[bool] = []

    def look(part: Tensor) -> None:
        if part.requires_grad:
            grads: Any = torch.autograd.grad(part, [leaves[i] for i in changed], allow_unused=True)
            used.extend(bool(grad.any()) for grad in grads if grad is not None)

    with torch.enable_grad():
        value_of(inner, inner.split.join([leaf.detach() for leaf in moving], leaves), inner.hyper, look)
    return _FOLLOWING if any(used) else None


_FOLLOWING = (
    "the objective uses buffers that training changes (an average of the weights, the statistics of InstanceNorm): they are "
    "taken as constants, so the hypergradient lacks what passes through them. Let the objective do without, or write a step of "
    "your own that has them in its state."
)
