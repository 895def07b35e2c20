"""Products with J from the graph of u ↦ Jᵀu, which is linear in u: differentiated by u it gives Jv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from steadygrad.update.walk import run_backward


class DoubleBackward(NamedTuple):
    """The graph of u ↦ Jᵀu, J being the derivative of some outputs by some inputs: made once, for any number of products Jv.

    Works wherever double backward does; torch.func.jvp fails through sparse products and is silently zero through collectives.
    Errors are torch's: who calls knows what else can be done where F has no second derivative.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> DoubleBackward.of([x * x], [x]).push([torch.tensor([1.0, 10.0])])
    [tensor([ 2., 40.])]
    """

    through: tuple[int, ...]
    """The outputs that carry a gradient: the others have no u."""
    outputs: int
    probes: list[Tensor]
    """u, a tensor for each of `through`."""
    pulled: list[Tensor | None]
    """Jᵀu, a tensor for each input; None where no path leads to it."""

    @classmethod
    def of(cls, outputs: Sequence[Tensor], inputs: Sequence[Tensor], probes: Sequence[Tensor] | None = None) -> DoubleBackward:
        """At these u, leaves that need a gradient, one for each output that carries one; at zeros unless given."""
        through = tuple(i for i, output in enumerate(outputs) if output.requires_grad)
        at = [torch.zeros_like(outputs[i], requires_grad=True) for i in through] if probes is None else list(probes)
        pulled: Sequence[Tensor | None] = [None] * len(inputs)
        if through:
            with torch.enable_grad():
                pulled = run_backward(tuple(outputs[i] for i in through), tuple(at), True, True, tuple(inputs), True, False)
        return cls(through, len(outputs), at, list(pulled))

    def push(self, tangents: Sequence[Tensor]) -> list[Tensor | None]:
        """Jv for a tangent an input, without a graph: a tensor for each output, None where no path leads to it."""
        pairs = [(g, v) for g, v in zip(self.pulled, tangents, strict=True) if g is not None and g.requires_grad]
        pushed: list[Tensor | None] = [None] * self.outputs
        if pairs:
            graph, along = zip(*pairs, strict=True)
            grads = run_backward(graph, along, True, False, tuple(self.probes), True, False)
            for i, grad in zip(self.through, grads, strict=True):
                pushed[i] = grad
        return pushed
