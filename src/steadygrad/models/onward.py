"""What the models' and the experiments' training loops share: the methods they take, and the step that the paper's code adds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import steadygrad as sg

Gradient = sg.Implicit | sg.BPTT | sg.TBPTT | sg.ARTBP


def onward(h: Tensor, update: Callable[[Tensor], Tensor]) -> Tensor:
    """F(h) by value, h by derivative: a loss of it gives its cotangent at F(h) to whatever made h."""
    with torch.no_grad():
        moved = update(h) - h
    return h + moved
