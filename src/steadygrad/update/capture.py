"""F as torch traces it, and the graphs of several steps or products that are made of that."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Generator, Hashable
from contextlib import AbstractContextManager, contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from steadygrad.failure import SteadyStateError
from steadygrad.state import Layout, State
from steadygrad.update import onednn
from steadygrad.update.saved import CHANGED

BACKEND = "inductor"
KeptParts = dict[Hashable, list[Tensor]]
"""What the first parts of graphs have worked out at one state."""


class Captured:
    """F on one kind of state as torch traced it, with the graphs of several steps or products that were made of it.

    Torch finds what F closes over, and compares at each call whether it is what F was traced with; the graphs are ours. So F is
    traced once, and its guards are checked once in a solve, however many graphs there are.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.graphs: dict[Hashable, Callable[..., Any]] = {}
        self.divided: dict[Hashable, tuple[Callable[..., Any], Callable[..., Any]]] = {}
        """Graphs in two parts: what is worked out once at a state, and what is done with it."""
        self.compared: set[Hashable] = set()
        """The graphs of which it was seen that they give what F gives."""

    def __call__(self, *inputs: Tensor) -> list[Any]:
        """What torch takes for F's tensors: how to call the graphs."""
        return [(self, inputs)] * sum(len(node.args[0]) for node in self.module.graph.nodes if node.op == "output")


class CapturedCall:
    """F as captured, with the tensors that it closes over at present; called with the tensors of states.

    `within` gives the context in which F is called: its autocast is not in what torch captured, but in the graphs.
    """

    def __init__(
        self,
        captured: Captured,
        inputs: tuple[Tensor, ...],
        leaves: list[Tensor],
        within: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.captured, self._within = captured, within
        places = {id(leaf): place for place, leaf in enumerate(leaves)}
        self._state = [places.get(id(x)) for x in inputs]
        """Of each input, which tensor of the state it is; None for what F closes over."""
        self._closed = [x for place, x in zip(self._state, inputs, strict=True) if place is None]
        self._shapes = [leaf.shape for leaf in leaves]
        self.seal()

    def seal(self) -> None:
        """Take note of what F closes over as it is now: until the backward pass nothing of it may change."""
        self._versions = [None if x.is_inference() else x._version for x in self._closed]

    def check(self) -> None:
        """Refuse products with J where something that F closes over was changed in place since: they would be those of another F.

        Products without graphs are refused by torch itself.
        """
        for x, version in zip(self._closed, self._versions, strict=True):
            if version is not None and x._version != version:
                raise SteadyStateError(CHANGED.format(f"shape {tuple(x.shape)}, version {x._version}, expected {version}"))

    def run(self, body: Callable[..., Any], sizes: tuple[Any, ...], *states: list[Tensor]) -> list[Tensor]:
        """What the body returns, from a graph, which is built at the first time. Tensors may have any shape of the right size."""
        tensors = [*self._closed, *(leaf for leaves in states for leaf in leaves)]
        graph = self.captured.graphs.get((body, sizes))
        if graph is None:
            graph = self.captured.graphs[body, sizes] = self._built(body, sizes, tensors)
        found = graph(*tensors)
        self.seal()  # F may itself write into what it holds, as batch norm does
        return found

    def run_from(self, kept: KeptParts, body: Callable[..., Any], sizes: tuple[Any, ...], *states: list[Tensor]) -> list[Tensor]:
        """What the body returns, from two graphs: what the first state alone tells, worked out once and kept, and the rest.

        So F is linearised once at a state for many graphs of products.
        """
        fixed = [*self._closed, *states[0]]
        moving = [leaf for leaves in states[1:] for leaf in leaves]
        graphs = self.captured.divided.get((body, sizes))
        if graphs is None:
            graphs = self.captured.divided[body, sizes] = self._built_apart(body, sizes, fixed, moving)
        first, then = graphs
        if (body, sizes) not in kept:
            kept[body, sizes] = list(first(*fixed))
        found = then(*fixed, *moving, *kept[body, sizes])
        self.seal()
        return found

    def _built(self, body: Callable[..., Any], sizes: tuple[Any, ...], tensors: list[Tensor]) -> Callable[..., Any]:
        """A graph of the body, compiled."""
        with compiling(), self._within():
            return _lowered(self._traced(body, sizes, tensors), tensors)

    def _built_apart(
        self, body: Callable[..., Any], sizes: tuple[Any, ...], fixed: list[Tensor], moving: list[Tensor]
    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The two graphs of `run_from`, compiled."""
        with compiling(), self._within():
            first, then = divided_at(self._traced(body, sizes, [*fixed, *moving]), len(fixed))
            return _lowered(first, fixed), _lowered(then, [*fixed, *moving, *first(*fixed)])

    def _traced(self, body: Callable[..., Any], sizes: tuple[Any, ...], tensors: list[Tensor]) -> Any:
        """The body with F in it, as operations on such tensors."""
        module, state, shapes, closed = self.captured.module, self._state, self._shapes, len(self._closed)

        def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
            def image(*leaves: Tensor) -> list[Tensor]:
                known = iter(tensors)
                return list(module(*(next(known) if place is None else leaves[place] for place in state)))

            given = [tensors[i : i + len(shapes)] for i in range(closed, len(tensors), len(shapes))]
            states = [[leaf.view(shape) for leaf, shape in zip(leaves, shapes, strict=True)] for leaves in given]
            return tuple(body(image, sizes, *states))

        from torch.fx.experimental.proxy_tensor import make_fx  # imported late: it takes a second

        return make_fx(flat, tracing_mode="fake")(*tensors)


@contextmanager
def compiling() -> Generator[None]:
    """Where whatever torch raises means that there is no graph."""
    with without_warnings():
        try:
            yield
        except Exception as error:
            raise NotCompiledError(error) from error


@contextmanager
def without_warnings() -> Generator[None]:
    """Without the warnings of torch about deprecated parts of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class NotCompiledError(Exception):
    """A traced graph could not be compiled."""

    @property
    def inner_exception(self) -> Any:
        return self.args[0]


class Trace:
    """F traced by torch for one kind of state.

    It has a code object of its own: torch counts recompilations by code object, and all updates that share one would be
    lost to its limit together.
    """

    numbers = itertools.count()

    def __init__(self) -> None:
        code = _image.__code__.replace(co_name=f"image_{next(self.numbers)}")
        function = FunctionType(code, _image.__globals__)
        self.builds = 0
        self.call: Callable[..., Any] = torch.compile(function, fullgraph=True, dynamic=False, backend=self._build)

    def _build(self, module: Any, inputs: list[Any]) -> Callable[..., Any]:
        self.builds += 1
        return Captured(module)


def _image(function: Any, args: Any, layout: Layout | None, leaves: list[Tensor]) -> list[Tensor]:
    """What is traced: the user's function and its args, not our Update, whose checks cannot be traced."""
    image = [function(leaves[0], *args)] if layout is None else _in_order(layout.template, function(layout.nest(leaves), *args))
    # Under autocast F returns another dtype. A tensor that F hands through would be none of the graph's own.
    return [new.to(old.dtype).clone() for new, old in zip(image, leaves, strict=True)]


def _in_order(template: State, state: State) -> list[Tensor]:
    """`state.in_order` in words that torch can trace (a cast of a range it cannot)."""
    if template is None:
        return [state]
    if isinstance(template, dict):
        return [leaf for key in template for leaf in _in_order(template[key], state[key])]
    return [leaf for part, item in zip(template, state, strict=True) for leaf in _in_order(part, item)]


def divided_at(module: Any, fixed: int) -> tuple[Any, Any]:
    """A traced graph as two: what depends on its first so many inputs alone, and the rest, which takes all inputs and that.

    What every product works out anew of the state, as the cosine in the derivative of a sine, is first made one.
    """
    from torch._functorch.compile_utils import fx_graph_cse
    from torch.fx import Graph, GraphModule

    nodes: list[Any] = list(fx_graph_cse(module.graph).nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    moving = {*inputs[fixed:], nodes[-1]}
    for node in nodes:
        if not moving.isdisjoint(node.all_input_nodes):
            moving.add(node)
    needed = [n for n in nodes if n not in moving and n.op != "placeholder" and not moving.isdisjoint(n.users)]
    first, then = Graph(), Graph()
    here: dict[Any, Any] = {}
    for node in nodes:
        if node not in moving:
            here[node] = first.node_copy(node, here.__getitem__)
    first.output(tuple(here[node] for node in needed))
    there: dict[Any, Any] = {node: then.node_copy(node) for node in inputs}
    for i, node in enumerate(needed):
        there[node] = then.placeholder(f"kept_{i}")
        there[node].meta = dict(node.meta)
    for node in nodes:
        if node in moving and node not in there:
            there[node] = then.node_copy(node, there.__getitem__)
    return GraphModule(module, first), GraphModule(module, then)


def _lowered(module: Any, inputs: list[Any]) -> Callable[..., Any]:
    """What the backend makes of a traced graph, as C++ that calls its kernels itself where that can be had.

    Thirty steps at 32×64 take 0.22 ms from C++ and 0.28 from inductor's Python (one thread); compiling takes as long.
    """
    backend: Any = torch._dynamo.lookup_backend(BACKEND)
    if BACKEND == "inductor" and onednn.better() and onednn.with_its_products(module):
        return backend(module, inputs)  # C++ would call that operation by a detour
    if BACKEND == "inductor" and all(x.device.type == "cpu" for x in inputs if isinstance(x, Tensor)):
        from torch._inductor import config  # imported late: it takes a second

        try:
            with config.patch(cpp_wrapper=True):
                return backend(module, inputs)
        except Exception:  # not every operation can be called from it: then from Python, which tells what else is wrong
            return backend(module, inputs)
    return backend(module, inputs)
