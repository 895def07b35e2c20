"""Does the exchange between ranks inside F have a derivative? Found out once for every F, since no certificate can show it."""

from __future__ import annotations

from typing import Any

import torch

from steadygrad.solution import OnFailure, report_failure
from steadygrad.state.rows import dot, norm
from steadygrad.state.shards import current
from steadygrad.update.jacobian import Jacobian

STEP = {torch.float32: 1e-2, torch.float64: 1e-4}
"""Relative change of the state: its effect stands far above rounding, and F is nearly linear over it."""
VISIBLE = 1e3
"""An effect on other ranks of fewer roundings of F than this tells nothing."""
MISSING = 0.5
"""Where autograd sees less than this of the effect, it does not see the exchange."""

_seen: set[Any] = set()
"""The code that was looked at: the same on every rank, since all run the same program."""


def check_exchange(jacobian: Jacobian, on_failure: OnFailure) -> None:
    """Report an F whose state on some ranks changes it on others without autograd seeing that.

    The states of every other rank are moved by εv; d is what F changes by on the rest. With uᵀ = dᵀ there and 0 elsewhere, uᵀJ εv
    must be ‖d‖², and is 0 where the exchange has no derivative. One call of F and one product with Jᵀ, at the first solve; as
    many again, with a smaller ε, before anything is reported.
    """
    shards, function = current(), jacobian.update.function
    if shards is None or shards.group.size() == 1:
        return
    owner = getattr(function, "__self__", None)
    key = (getattr(function, "__code__", type(function)), type(getattr(owner, "cell", owner)))
    if key in _seen:
        return
    _seen.add(key)
    moves = shards.group.rank() % 2 == 1
    step = STEP[jacobian.h.dtype]
    with torch.no_grad():
        if _unseen(jacobian, step, moves, shards.columns) and _unseen(jacobian, step / 4, moves, shards.columns):
            report_failure(_NO_DERIVATIVE, on_failure)


def _unseen(jacobian: Jacobian, step: float, moves: bool, columns: int) -> bool:
    """Whether the ranks that stay see an effect of those that move, of which autograd sees less than half."""
    h, image = jacobian.h, jacobian.h + jacobian.gap()
    size = norm(h) / columns**0.5
    change = step * torch.where(size > 0, size, torch.ones_like(size)).expand_as(h) * moves
    effect = (jacobian.update(h + change) - image) * (not moves)
    seen = dot(jacobian.vjp(effect), change)
    jacobian.spend(-1)
    found = dot(effect, effect)
    rounding = VISIBLE * torch.finfo(jacobian.precision).eps * norm(image)
    return bool(((found.sqrt() > rounding) & (seen < MISSING * found)).any())


_NO_DERIVATIVE = (
    "F on one rank changes with the state of another, but autograd does not see it: F exchanges by a collective without a "
    "derivative (dist.all_gather, dist.all_to_all_single, send and recv), so that the gradient lacks these terms. Use those of "
    "torch.distributed._functional_collectives whose names end in _autograd."
)
