"""What F reaches outside of itself: found in its graph, and given gradients that were summed over many steps elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from steadygrad.solution import SteadyStateError
from steadygrad.update import nodes_behind

Edge = tuple[Any, int]
"""A place in autograd's graph: a node, and which of its outputs."""


class Closure:
    """The tensors that F closes over or gets as args, as edges of autograd's graph, and a sum of gradients for each.

    F is evaluated twice with a graph. What both graphs have in common was there before F was called; the edges by which one of
    them enters it are what F depends on besides the state: parameters, but also tensors that were computed from them before,
    without a list of either. `outputs` is that graph. When autograd goes back through it, whatever it carries, hooks put the
    sums in the place of what would leave F: from there on everything is as after an ordinary backward pass, for
    `torch.autograd.grad` of any tensor, and hooks on parameters (DDP and FSDP2 train as one process does).
    """

    def __init__(self, linearise: Callable[[], tuple[list[Tensor], list[Tensor]]]) -> None:
        # A weight that autocast has cast once for both graphs would pass for a tensor that was there before.
        torch.clear_autocast_cache()
        first = linearise()
        torch.clear_autocast_cache()
        second = linearise()
        self.outputs = [out.clone() for out in first[1]]  # F may return what it closes over
        torch.clear_autocast_cache()
        mine = list(nodes_behind(out.grad_fn for out in self.outputs))
        others = set(nodes_behind(out.grad_fn for out in second[1] if out.grad_fn is not None))
        others |= {_accumulator(out) for out in second[1] if out.is_leaf and out.requires_grad}
        self.edges: list[Edge] = []
        self.sums: list[Tensor | None] = []
        self._index: dict[Edge, int] = {}
        self._delivered: set[int] = set()
        for node in mine:
            if node not in others:
                self._watch(node, others)
        self.inputs = [GradientEdge(*edge) for edge in self.edges]
        """The edges as `torch.autograd.grad` takes them."""
        self._nodes = {node for node, _ in self.edges}
        self._versions = [(leaf, leaf._version) for node in self._nodes if (leaf := getattr(node, "variable", None)) is not None]

    def _watch(self, node: Any, others: set[Any]) -> None:
        """Let a node of F's own give the sums to those of its inputs that lie outside."""
        places: list[int | None] = []
        for behind, number in node.next_functions:
            edge = (behind, number)
            if behind in others and edge not in self._index:
                self._index[edge] = len(self.edges)
                self.edges.append(edge)
                self.sums.append(None)
            places.append(self._index.get(edge))
        if any(place is not None for place in places):
            node.register_hook(partial(_deliver, self.sums, self._delivered, places))

    def check(self) -> None:
        """Refuse to go back over steps whose parameters were changed in place since."""
        for leaf, version in self._versions:
            if leaf._version != version:
                raise SteadyStateError(_CHANGED.format(tuple(leaf.shape)))

    def clear(self) -> None:
        """Begin new sums."""
        self.sums[:] = [None] * len(self.edges)
        self._delivered.clear()

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        """Add to the sums, edge by edge."""
        for i, gradient in enumerate(gradients):
            if gradient is None:
                continue
            found = self.sums[i]
            if found is None:
                self.sums[i] = gradient.clone()  # autograd may hand out what others hold
            elif found.layout is torch.strided and gradient.layout is torch.strided:
                found.add_(gradient)
            else:
                self.sums[i] = found + gradient

    def refuse_strays(self, outputs: Sequence[Tensor], own: Sequence[Tensor]) -> None:
        """Refuse a graph of F that reaches what the first one did not; `own` are the leaves that stand for the state."""
        leaves = {id(leaf) for leaf in own}
        ahead: list[Any] = [out.grad_fn for out in outputs if out.grad_fn is not None]
        seen: set[Any] = set(ahead)
        index, nodes = self._index, self._nodes
        while ahead:
            node = ahead.pop()
            if node in nodes:
                continue  # F returned it as it is
            following = node.next_functions
            if not following and id(getattr(node, "variable", None)) not in leaves and hasattr(node, "variable"):
                raise SteadyStateError(_STRAY.format(tuple(node.variable.shape)))
            for edge in following:
                behind = edge[0]
                if behind is None or behind in seen or edge in index:
                    continue
                if behind in nodes:
                    raise SteadyStateError(_STRAY.format("unknown"))
                seen.add(behind)
                ahead.append(behind)


def _deliver(
    sums: list[Tensor | None], delivered: set[int], places: list[int | None], given: Sequence[Tensor | None], _: Any
) -> tuple[Tensor | None, ...]:
    """What leaves a node of F: to the outside the sums, each once, and nothing to what lies inside and is a leaf."""
    out: list[Tensor | None] = []
    for place, gradient in zip(places, given, strict=True):
        if place is None or gradient is None:
            out.append(gradient)
        elif place in delivered:
            out.append(None)
        else:
            delivered.add(place)
            out.append(sums[place])
            sums[place] = None
    return tuple(out)


def _accumulator(leaf: Tensor) -> Any:
    """The node that adds to a leaf's gradient."""
    return torch.autograd.graph.get_gradient_edge(leaf).node


_CHANGED = (
    "a parameter of shape {} that F uses was changed in place between the solve and its backward pass, which takes the steps "
    "again and would take others. Call backward() before optimizer.step(), or use BPTT() without checkpoints."
)

_STRAY = (
    "F reached a tensor (of shape {}) in a step taken again that it did not reach in the last step of the solve, so its gradient "
    "would be lost: F branches on its state, or uses something cached (parametrize.cached()) that is gone by now. Let F use the "
    "same tensors in every step, or use BPTT() without checkpoints."
)
