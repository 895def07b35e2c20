"""How much work a product with J is, as far as the graph of F shows it: by sizes, never by a clock."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.autograd.function import BackwardCFunction

from steadygrad.update.update import nodes_behind

NODES = 24
"""A product passes so many nodes of a light graph at most, at two to five microseconds each."""
WORK = 2**20
"""Numbers that pass through all of them times the widest dimension: about the multiplications, were each a matrix product. In
float32 one core takes 20 to 50 microseconds for as many."""


def is_light(outputs: Iterable[Tensor]) -> bool:
    """Whether a product with J takes little more than the calls it is made of: a few small operations, none of them unknown.

    >>> import torch
    >>> h, W = torch.ones(2, 3, requires_grad=True), torch.ones(3, 3)
    >>> is_light([torch.tanh(h @ W)])
    True
    """
    numbers, widest = 0, 1
    for before, node in enumerate(nodes_behind(output.grad_fn for output in outputs)):
        shapes = [tuple(part.shape) for part in _metadata(node)]
        numbers += sum(math.prod(shape) for shape in shapes)
        widest = max([widest, *(size for shape in shapes for size in shape[1:] or shape)])
        if before >= NODES or numbers * widest > WORK or isinstance(node, BackwardCFunction):
            return False
    return True


def _metadata(node: Any) -> list[Any]:
    """The shapes of what a node is given: those of the results of an operation."""
    return node._input_metadata
