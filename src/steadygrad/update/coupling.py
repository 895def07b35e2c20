"""Whether the problems of a batch are problems of their own, as batch_dims says, or F couples them, as a mean over them does."""

from __future__ import annotations

import torch
from torch import Tensor

from steadygrad.update.linear_map import Linear
from steadygrad.update.update import Update, agree

ELSEWHERE = 0.1
"""By how much of its size the state of a problem is changed to see whether the images of the others change."""


def couples(update: Update, h: Tensor) -> bool:
    """Whether F at another state of the first problem has other images of the others: three evaluations, one against chance."""
    if len(h) < 2:
        return False
    with torch.no_grad():
        other = h.clone()
        other[0] += ELSEWHERE * (h[0].abs() + h[0].square().mean().sqrt())
        apart, together, again = (update(state)[1:] for state in (h, other, h))
        return agree(again, apart, update.precision) and not agree(together, apart, update.precision)


def coupled_in(jacobian: Linear, like: Tensor) -> bool:
    """Whether the image of the first problem depends on the states of others: one product."""
    if len(like) < 2:
        return False
    v = torch.zeros_like(like)
    v[0] = 1.0
    others = jacobian.vjp(v)[1:]
    return bool(((others != 0) & others.isfinite()).any())
