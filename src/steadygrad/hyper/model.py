"""A module as a function of its parameters, with the running statistics of BatchNorm as part of the state."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.func import functional_call
from torch.nn.modules.batchnorm import _NormBase

from steadygrad.hyper.norms import Differentiable, Named, keeps_statistics, watched
from steadygrad.update import nodes_behind


class Model:
    """Calls functions of a module with parameters and buffers of our choice; the module itself stays as it is.

    Training runs in the modes that the module's parts had when this was made, so that frozen parts stay frozen; evaluation
    in eval mode. The running statistics of BatchNorm are computed here, by the same formula, since torch writes them in place
    where autograd does not look: so the gradient knows that they follow the weights.
    """

    def __init__(self, module: nn.Module) -> None:
        if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"model must be a torch.nn.Module; got {type(module).__name__}.")
        self.module = module
        self.names = [name for name, p in module.named_parameters() if p.requires_grad]
        if not self.names:
            raise ValueError("the model has no parameter that needs a gradient, so there is nothing to train.")
        self._modes = {name: part.training for name, part in module.named_modules()}
        self._norm_names = [name for name, part in module.named_modules() if keeps_statistics(part)]
        buffers = dict(module.named_buffers())
        self._statistics = [f"{n}.{k}".lstrip(".") for n in self._norm_names for k in ("running_mean", "running_var")]
        self._buffers = [name for name in buffers if name not in self._statistics]
        for name, part in module.named_modules():
            if getattr(part, "max_norm", None) is not None and isinstance(part, (nn.Embedding, nn.EmbeddingBag)):
                raise ValueError(f"{name or 'the model'} has max_norm, which rescales its weights in place; leave it out.")
        self._calling = _Calling(module)
        self._seen: tuple[list[Any], list[int]] = ([], [])
        self._look()

    def tensors(self) -> dict[str, Named]:
        """Copies of the module's: "parameters" that are trained, "statistics" of BatchNorm, and other "buffers"."""
        self._look()
        kinds = {"parameters": self.names, "statistics": self._statistics, "buffers": self._buffers}
        own = self._own()
        return {kind: {name: own[name].detach().clone() for name in names} for kind, names in kinds.items()}

    def load(self, tensors: Named) -> None:
        """Write tensors into the module."""
        own = self._own()
        with torch.no_grad():
            for name, tensor in tensors.items():
                own[name].copy_(tensor)

    def _own(self) -> Named:
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    def train(self, function: Callable[[nn.Module], Tensor], parameters: Named, state: Named) -> tuple[Tensor, Named]:
        """function(module) in training mode, and the statistics and buffers after it."""
        self._look()
        with self._mode(self._modes), self._normalising(), disable_saved_tensors_hooks(_RECOMPUTED), ExitStack() as stack:
            statistics = {name: state[name] for name in self._statistics}
            counters = {name: state[name].clone() for name in self._buffers}  # what the module writes in place
            for name, part in self._norms.items():
                stack.enter_context(watched(name, part, statistics, counters))
            given = {**parameters, **{name: state[name] for name in self._statistics}, **counters}
            value = self._call(function, given)
            return value, {**statistics, **{name: given[name].detach() for name in self._buffers}}

    def evaluate(self, function: Callable[[nn.Module], Any], parameters: Named, state: Named) -> Any:
        """function(module) in eval mode."""
        self._look()
        with self._mode(None), self._normalising():
            return self._call(function, {**parameters, **{name: buffer.clone() for name, buffer in state.items()}})

    def _normalising(self) -> AbstractContextManager[Any]:
        return Differentiable() if self._normalises else nullcontext()

    def _look(self) -> None:
        """Find parts and tied names, unless the module is as it was at the last call: looking for them takes longer."""
        parts = list(self.module.modules())
        there = [*parts, *(t for part in parts for own in (part._parameters, part._buffers) for t in own.values())]
        if self._seen[1] == (ids := [id(it) for it in there]):
            return
        named = dict(self.module.named_modules())  # each part once: a part that is there twice must not be swapped twice
        own = {
            f"{name}.{key}".lstrip("."): tensor
            for name, part in named.items()
            for tensors in (part._parameters, part._buffers)
            for key, tensor in tensors.items()
            if tensor is not None  # pyright: ignore[reportUnnecessaryComparison]
        }
        self._check_names(named, own)
        first = {id(own[name]): name for name in (*self.names, *self._statistics, *self._buffers)}
        self._places = [(f"module.{name}", first[id(tensor)]) for name, tensor in own.items() if id(tensor) in first]
        self._norms = {name: named[name] for name in self._norm_names}
        self._parts = list(named.items())
        self._normalises = any(isinstance(part, _NormBase) for part in named.values())
        self._uncaptured = False
        self._seen = (there, ids)  # the objects themselves are kept, since another may get the id of one that is gone

    def check_captured(self, loss: Tensor) -> None:
        """Refuse, the first time, a loss that uses the module's parameters as they were outside the call, which do not train."""
        if self._uncaptured:
            return
        own = {id(parameter): name for name, parameter in self.module.named_parameters()}
        for node in nodes_behind([loss.grad_fn]):
            if id(getattr(node, "variable", None)) in own:
                raise ValueError(_CAPTURED.format(own[id(node.variable)]))
        self._uncaptured = True

    def _check_names(self, parts: dict[str, nn.Module], tensors: Named) -> None:
        gone = [name for name in (*self.names, *self._statistics, *self._buffers) if name not in tensors]
        gone += [name for name in self._norm_names if name not in parts]
        known = {id(tensors[name]) for name in self.names if name in tensors}
        came = [n for n, p in self.module.named_parameters() if p.requires_grad and id(p) not in known]
        if gone or came:
            what = f"{', '.join(gone)} no longer there" if gone else f"{', '.join(came)} new"
            raise ValueError(f"the model has changed since the step was made ({what}); make the step anew.")

    def _call(self, function: Callable[[nn.Module], Any], given: Named) -> Any:
        placed = {place: given[name] for place, name in self._places}
        value = functional_call(self._calling, placed, (function,), tie_weights=False)  # tied places are among them
        # A module may also put a new tensor in the place of a buffer.
        given.update({name: placed[place] for place, name in self._places if placed[place] is not given[name]})
        return value

    @contextmanager
    def _mode(self, modes: dict[str, bool] | None) -> Generator[None]:
        """Every part in the mode given for its name, as it is where none is; None for eval mode."""
        before = [part.training for _, part in self._parts]
        try:
            for name, part in self._parts:
                _set_mode(part, modes is not None and modes.get(name, part.training))
            yield
        finally:
            for (_, part), mode in zip(self._parts, before, strict=True):
                _set_mode(part, mode)


_CAPTURED = (
    "the loss uses {} as it was taken from the module before, and not as it is in training; take it from the model that is "
    "passed to the loss."
)
_RECOMPUTED = (
    "the model uses saved tensor hooks, as torch.utils.checkpoint does to run it again during backward. By then it has its own "
    "parameters back in place of those of the training state, so the gradient would be wrong. Turn activation checkpointing off "
    "for tuning."
)


def _set_mode(part: nn.Module, mode: bool) -> None:
    if part.training is not mode:  # nn.Module's assignment is slow
        part.training = mode


class _Calling(nn.Module):
    """Lets functional_call run a whole function of the module, not just its forward."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[[nn.Module], Any]) -> Any:
        return function(self.module)
