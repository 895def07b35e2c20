"""Products with Jᵀ by the nodes of F's graph, called one after the other, without torch's engine around each product."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.utils.hooks import RemovableHandle

from steadygrad.state.shards import current
from steadygrad.update.levels import inside_transform
from steadygrad.update.update import nodes_behind

Result = TypeVar("Result")

run_backward: Any = Variable._execution_engine.run_backward  # pyright: ignore[reportAttributeAccessIssue]
"""What torch.autograd.grad calls after checks of its own, which take a third of a small product's time: outputs, cotangents,
retain_graph, create_graph, inputs, and then that inputs may be unreachable and that no .grad is added to."""

MOST = 64
"""Nodes of a graph that is looked through for a way: in a larger one the engine's share of a product is small."""
OWN = re.compile(r"\w+Backward\d+")
"""The names of the derivatives that torch itself is made with. Others, as those of a torch.autograd.Function or of changes in
place, ask more of who calls them."""


class Walk:
    """The only way from F(h) back to h: `walk(v)` is Jᵀv, the same bits as by the engine.

    Around the nodes of a product the engine takes 10 µs and more, which at 32×64 is longer than they take themselves. Called
    without it a node works out the derivatives by parameters too, unless the engine is at work that was asked for h alone: so
    the products of a solve are taken inside of one run of it, for 30 µs (`inside`).
    """

    def __init__(self, output: Tensor, leaf: Tensor, way: list[tuple[Any, int | None, tuple[None, ...]]]) -> None:
        self._output, self._leaf, self._way = output, leaf, way
        self._task: int | None = None
        """The run of the engine inside of which nodes may be called."""
        self._proven = False

    @classmethod
    def along(cls, output: Tensor, leaf: Tensor) -> Walk | None:
        """The way from one tensor to another, where there is one that does not fork and nobody else wants to see gradients."""
        if leaf.device.type != "cpu" or current() is not None or torch.is_anomaly_enabled() or inside_transform():
            return None
        # A node that has several results would take what is given it for a cotangent of its first.
        way = None if output.output_nr else _way(output.grad_fn, leaf)
        return None if way is None else cls(output, leaf, way)

    def inside(self, call: Callable[[], Result]) -> Result:
        """`call()`, while the engine is on its way to h, so that products may be walked."""
        found: list[Result] = []

        def walking() -> None:
            self._task = _task()
            found.append(call())

        try:
            with torch.enable_grad():
                mark: Any = _Inside.apply(walking, self._output)
            run_backward((mark,), (mark,), True, False, (self._leaf,), True, False)
        except _DoneError:
            return found[0]
        finally:
            self._task = None
        raise AssertionError("the engine has passed what it was to be stopped by")

    @property
    def open(self) -> bool:
        """Whether nodes may be called here: not in another run of the engine, or another thread, which ask for something else."""
        return self._task is not None and self._task == _task()

    def __call__(self, v: Tensor) -> Tensor | None:
        if self._proven:
            try:
                return self._walked(v)
            except RuntimeError:
                # What a checkpoint in F has dropped, it computes once a run of the engine. Of other errors the engine tells.
                self._task = None
        found: Tensor | None = run_backward((self._output,), (v,), True, False, (self._leaf,), True, False)[0]
        self._proven = self._task is not None and found is not None and self._agrees(v, found)
        if not self._proven:
            self._task = None
        return found

    def _agrees(self, v: Tensor, found: Tensor) -> bool:
        """Whether a walk gives the same bits, and every node on it what it expects.

        From node to node the engine sums over what was broadcast and casts to the dtype that was there. A node may take what is
        larger without an error, and for a cotangent of many zeros even give the same.
        """
        image: Any = v
        try:
            for node, place, others in self._way:
                if not _expected(image, node._input_metadata[0]):
                    return False
                image = node(image, *others) if place is None else node(image, *others)[place]
        except RuntimeError:
            return False
        return type(image) is Tensor and image.dtype is found.dtype and torch.equal(image, found)  # equal() compares values alone

    def _walked(self, v: Any) -> Any:
        for node, place, others in self._way:
            v = node(v, *others) if place is None else node(v, *others)[place]
        return v


class _DoneError(Exception):
    """Stops the engine, which has nothing else to do: nodes and hooks further on would meet a gradient that is none."""


class _Inside(torch.autograd.Function):
    """Runs something in its backward pass, at which that ends."""

    @staticmethod
    def forward(ctx: Any, call: Callable[[], None], output: Tensor) -> Tensor:
        ctx.call = call
        return output.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        ctx.call()
        raise _DoneError


def _expected(image: Any, metadata: Any) -> bool:
    """Whether a cotangent is as the result was that it belongs to."""
    return type(image) is Tensor and list(image.shape) == list(metadata.shape) and image.dtype is metadata.dtype


def hooks_so_far() -> int:
    """A number that grows with every hook that is registered anywhere: nodes do not tell whether they have any."""
    return RemovableHandle.next_id


def _task() -> int:
    """The run of the engine that this is inside of; −1 outside of any."""
    return torch._C._current_graph_task_id()  # pyright: ignore[reportAttributeAccessIssue]


def _way(start: Any, leaf: Tensor) -> list[tuple[Any, int | None, tuple[None, ...]]] | None:
    """The nodes from a start to a leaf, each with the place of the result that goes on, None for an only one, and what it is
    given besides the first cotangent; None where the way forks, or is not made of torch's own nodes."""
    way: list[tuple[Any, int | None, tuple[None, ...]]] = []
    node, number = start, 0
    while getattr(node, "variable", None) is not leaf:
        if node is None or number or len(way) == MOST or not OWN.fullmatch(node.name()):
            return None
        behind = node.next_functions
        places = [place for place, (next_, _) in enumerate(behind) if next_ is not None]
        if len(places) > 1:
            places = [place for place in places if _leads(behind[place][0], leaf)]
        if len(places) != 1:
            return None
        place = places[0]
        way.append((node, place if len(behind) > 1 else None, (None,) * (len(node._input_metadata) - 1)))
        node, number = behind[place]
    return way


def _leads(start: Any, leaf: Tensor) -> bool:
    """Whether a leaf is behind a node, or may be: in a graph too large to be looked through."""
    nodes = list(islice(nodes_behind([start]), MOST))
    return len(nodes) == MOST or any(getattr(node, "variable", None) is leaf for node in nodes)
