"""F on flat states: checks what it returns, keeps its random draws fixed, and knows whether anything needs a gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from steadygrad.solution import SteadyStateError
from steadygrad.state import Layout


class Update:
    """The update of one solve: `update(flat)` is F on the flat form of the state.

    Random draws inside F (dropout) are the same in every call of one solve, as a steady state needs; the next solve draws
    anew. With `probe`, a first call without gradients has them enabled inside, to learn whether anything needs one.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], layout: Layout, probe: bool) -> None:
        self.function = function
        self.args = args
        self.layout = layout
        self.requires_grad = False
        self._coupled = [False]  # shared with the parts of it
        self._probe = probe
        self._generator: Generator | None = None
        _check_args(args, layout)

    @property
    def divisible(self) -> bool:
        """Whether F can be called on some of the problems: its arguments, if any, say what belongs to each."""
        drawn = self._generator is not None and self._generator.random
        return len(self.layout.batch) == 1 and bool(tensors_in(self.args)) and not drawn

    @property
    def precision(self) -> torch.dtype:
        """The dtype in which F computes."""
        return self.layout.dtype

    def part(self, rows: Tensor, value: Tensor) -> Update | None:
        """The same update for some of the problems, where F allows it and does not couple them.

        `value` are the present states: at them F is evaluated with and without the other problems, and compared.
        """
        if not self.divisible:
            return None
        part = self.of_rows(rows)
        if agree(part(value[rows]), self(value)[rows]):
            return part
        self.couples()
        return None

    @property
    def coupled(self) -> bool:
        """Whether F was seen to give a problem another image when others were left out."""
        return self._coupled[0]

    def couples(self) -> None:
        """Take note that F gives a problem another image when others are left out."""
        self._coupled[0] = True

    def of_rows(self, rows: Tensor) -> Update:
        """The same update for some of the problems."""
        part = Update(self.function, map_tensors(lambda arg: arg[rows], self.args), self.layout.of_rows(len(rows)), False)
        part._coupled = self._coupled
        part._generator = self._generator
        part.requires_grad = self.requires_grad
        return part

    def __call__(self, flat: Tensor) -> Tensor:
        if self._generator is None:
            return self._first_call(flat)
        self._generator.rewind()
        if self.layout.template is None and flat.dtype is self.layout.dtype:
            return self._plain(flat)
        return self.layout.flatten(self.leaves(self.layout.split(flat)))

    def _plain(self, flat: Tensor) -> Tensor:
        """`__call__` for a state of one tensor, without the detours: this is the innermost loop."""
        layout = self.layout
        h = flat.view(layout.shapes[0])
        version = None if h.is_inference() else h._version
        image = self.function(h, *self.args)
        if version is not None and h._version != version:
            raise SteadyStateError(_IN_PLACE)
        if not (isinstance(image, Tensor) and image.shape == h.shape and image.dtype is layout.dtype and not image.is_sparse):
            layout.check(image)
        return image.reshape(flat.shape)

    def leaves(self, leaves: list[Tensor]) -> list[Tensor]:
        """F on the tensors of a state, in the nesting that the user knows."""
        versions = [None if leaf.is_inference() else leaf._version for leaf in leaves]
        result = self.function(self.layout.nest(leaves), *self.args)
        for leaf, version in zip(leaves, versions, strict=True):
            if version is not None and leaf._version != version:
                raise SteadyStateError(_IN_PLACE)
        return self.layout.check(result)

    def linearise(self, leaves: list[Tensor]) -> list[Tensor]:
        """F at a state that needs gradients, with the graph that products with J run through."""
        if self._generator is not None:
            self._generator.rewind()
        with torch.enable_grad():
            return self.leaves(leaves)

    def _first_call(self, flat: Tensor) -> Tensor:
        self._generator = Generator(flat.device)
        before = flat.clone() if flat.is_inference() else None  # inference tensors count no versions
        if self._probe and not torch.is_grad_enabled():
            probes = [leaf.detach().requires_grad_() for leaf in self.layout.split(flat)]
            with torch.enable_grad():
                leaves = self.leaves([leaf.clone() for leaf in probes])  # on a leaf, torch's own error would hide ours
            self.requires_grad = needs_gradient(leaves, besides=probes)
            _refuse_forward_mode(leaves)
            result = self.layout.flatten([leaf.detach() for leaf in leaves])
        else:
            result = self.layout.flatten(self.leaves(self.layout.split(flat)))
        if before is not None and not torch.allclose(before, flat, rtol=0, atol=0, equal_nan=True):
            raise SteadyStateError(_IN_PLACE)
        self._generator.notice()
        return result


AGREEMENT = 1e3
"""Roundings by which F on some of the problems may differ from F on all: other sums in a matrix product."""


def agree(part: Tensor, whole: Tensor) -> bool:
    """Whether F gave the same rows twice, up to rounding and to what is not finite."""
    with torch.no_grad():
        size = whole.abs().amax(dim=1, keepdim=True)
        close = (part - whole).abs() <= AGREEMENT * torch.finfo(whole.dtype).eps * size
        return bool((close | ~(whole.isfinite() & part.isfinite())).all())


def tensors_in(args: Any) -> list[Tensor]:
    """The tensors in nested arguments, whatever else there is."""
    found: list[Tensor] = []
    map_tensors(lambda tensor: (found.append(tensor), tensor)[1], args)
    return found


def map_tensors(function: Callable[[Tensor], Tensor], args: Any) -> Any:
    """Nested arguments with `function` applied to the tensors in them; the rest stays."""
    if isinstance(args, Tensor):
        return function(args)
    if isinstance(args, (tuple, list, dict)):
        nested = cast("tuple[Any, ...] | list[Any] | dict[Any, Any]", args)
        if isinstance(nested, dict):
            return {key: map_tensors(function, item) for key, item in nested.items()}
        items = [map_tensors(function, item) for item in nested]
        if isinstance(nested, list):
            return items
        return type(nested)(*items) if hasattr(nested, "_fields") else tuple(items)
    return args


def _check_args(args: tuple[Any, ...], layout: Layout) -> None:
    dims = len(layout.batch)
    for tensor in tensors_in(args) if dims else []:
        if tensor.shape[:dims] != layout.batch:
            raise ValueError(
                f"with batch_dims={dims} every tensor among the arguments belongs to the problems and must begin with "
                f"{tuple(layout.batch)}; got shape {tuple(tensor.shape)}. Close over what all problems share."
            )


def needs_gradient(outputs: list[Tensor], besides: list[Tensor]) -> bool:
    """Whether the outputs are, or their graph reaches, any leaf besides the given ones."""
    known = {id(leaf) for leaf in besides}
    if any(output.is_leaf and output.requires_grad and id(output) not in known for output in outputs):
        return True
    for node in _nodes_behind([output.grad_fn for output in outputs]):
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            return True
        if node.name() == "CheckpointFunctionBackward" and _reaches(node, known):
            raise SteadyStateError(REENTRANT)
    return False


def _nodes_behind(start: Iterable[Any]) -> Iterator[Any]:
    """The nodes of a graph, from its outputs on, each once."""
    seen: set[Any] = set()
    ahead = [node for node in start if node is not None]
    while ahead:
        node = ahead.pop()
        if node not in seen:
            seen.add(node)
            yield node
            ahead.extend(behind for behind, _ in node.next_functions if behind is not None)


def _reaches(start: Any, leaves: set[int]) -> bool:
    return any(id(getattr(node, "variable", None)) in leaves for node in _nodes_behind([start]))


def _refuse_forward_mode(outputs: list[Tensor]) -> None:
    if any(unpack_dual(output).tangent is not None for output in outputs):
        raise SteadyStateError(
            "forward-mode differentiation of a steady state is not provided: its tangents would be those of the last few "
            "steps. Use reverse mode (loss.backward(), torch.autograd.grad)."
        )


REENTRANT = (
    "F uses torch.utils.checkpoint with use_reentrant=True, which cannot give products with J; "
    "call checkpoint(..., use_reentrant=False) inside F."
)


_IN_PLACE = (
    "update modified the state in place; F must return a new state and leave the one it was given as it is. "
    "Replace in-place operations on h (h += ..., h.relu_()) by their out-of-place forms, or start F with h = h.clone()."
)


class Generator:
    """torch's random state at the first call of F, restored before each later one if F turns out to draw from it."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._start = self._states()
        self.random = False

    def _states(self) -> list[Tensor]:
        states = [torch.get_rng_state()]
        if self._cuda is not None:
            states.append(torch.cuda.get_rng_state(self._cuda))
        return states

    def notice(self) -> None:
        """Compare with the state at the start, after the first call."""
        self.random = not all(torch.equal(a, b) for a, b in zip(self._start, self._states(), strict=True))

    def rewind(self) -> None:
        if self.random:
            torch.set_rng_state(self._start[0])
            if self._cuda is not None:
                torch.cuda.set_rng_state(self._start[1], self._cuda)
