"""Optimisers as maps from state to state, with hyperparameters that can be differentiated: what they share, and SGD."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from steadygrad.hyper.compiled import Compiled
from steadygrad.hyper.model import Model, Named
from steadygrad.hyper.problem import Hyper, attention_for_a_graph, transformed
from steadygrad.method import check_callable
from steadygrad.state import State

Loss = Callable[[Any, Any, Hyper], Tensor]
"""The training loss, `loss(model, batch, hyper)`."""
Setting = float | Tensor


@dataclass(frozen=True, eq=False)
class Optimiser(ABC):
    """One training step of a module as a map `step(state, hyper, batch) -> state`.

    The state is a dict: the module's "parameters", what the optimiser keeps beside them, the running "statistics" of
    BatchNorm, and other "buffers", which are carried along and have no gradient. A setting is a number, or a tensor with one
    number a parameter tensor (in the order of `names`); an entry of the same name in `hyper` takes its place. Whatever else
    is in `hyper` is for the loss.
    """

    model: nn.Module
    loss: Loss
    carried: ClassVar[frozenset[str]] = frozenset({"buffers"})
    slots: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[tuple[str, ...]] = ()
    """What of its fields can be a hyperparameter."""
    compile: bool = field(default=False, kw_only=True)
    """Whether steps that leave no graph run as one graph of torch.compile; what it cannot trace runs as it is, with a warning."""
    last_loss: list[Tensor] = field(default_factory=list[Tensor], init=False, repr=False)
    """The training loss of the last step, in a list of one; empty before the first."""
    _model: Model = field(init=False, repr=False)
    _fast: Compiled | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_model", Model(self.model))
        if not isinstance(self.compile, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"compile must be True or False; got {self.compile!r:.60}.")
        if self.compile:
            object.__setattr__(self, "_fast", Compiled(self._step))
        check_callable("loss", self.loss, "loss(model, batch, hyper)")
        for name in self.settings:
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float, Tensor)):
                raise TypeError(f"{name} must be a number, or a tensor with one a parameter tensor; got {value!r:.60}.")
            self.setting(name, {})

    @property
    def names(self) -> list[str]:
        """The names of the parameter tensors that are trained, in the order of per-tensor settings."""
        return list(self._model.names)

    def per_tensor(self, value: float) -> Tensor:
        """A setting with one number a parameter tensor, all of this value."""
        first = next(iter(self._model.tensors()["parameters"].values()))
        return torch.full((len(self._model.names),), value, dtype=first.dtype, device=first.device)

    def initial(self) -> State:
        """The state that starts from the module's present parameters and buffers."""
        own = self._model.tensors()
        parameters = own.pop("parameters")
        slots = {slot: {name: torch.zeros_like(p) for name, p in parameters.items()} for slot in self.slots}
        return {"parameters": parameters, **slots, **own}

    def load(self, state: State) -> None:
        """Write the parameters and buffers of a state into the module."""
        self._model.load({**state["parameters"], **_besides(state)})

    def evaluate(self, objective: Callable[[Any, Hyper], Any], state: State, hyper: Hyper) -> Any:
        """objective(model, hyper) with the parameters of the state, in eval mode."""
        found = self._model.evaluate(lambda module: objective(module, hyper), state["parameters"], _besides(state))
        if isinstance(found, Iterator):
            raise TypeError("a generator would run when the parameters are out of the model again; return what it adds up to.")
        return found

    def at_rest(self) -> Optimiser | None:
        """Another step with the same steady state and a better J, or None where this one's own is used."""
        return None

    def __call__(self, state: State, hyper: Hyper, batch: Any) -> State:
        if self._fast is not None and not (torch.is_grad_enabled() or transformed()):
            return self._fast(state, hyper, batch)
        return self._step(state, hyper, batch)

    def _step(self, state: State, hyper: Hyper, batch: Any) -> State:
        parameters, gradients, after = self._differentiate(state, hyper, batch)
        statistics = {name: after[name] for name in state["statistics"]}
        buffers = {name: after.get(name, tensor) for name, tensor in state["buffers"].items()}
        moved = self.move(parameters, gradients, {**state, "buffers": buffers}, hyper)
        return {"statistics": statistics, "buffers": buffers, **moved}

    @abstractmethod
    def move(self, parameters: Named, gradients: Named, state: State, hyper: Hyper) -> State:
        """The new "parameters", slots and, if they change, "buffers"."""

    def setting(self, name: str, hyper: Hyper) -> Setting:
        """A setting as it is in `hyper`, or else as it was given: one number, or one for every parameter tensor."""
        value: Any = hyper.get(name, getattr(self, name))
        count = len(self._model.names)
        if isinstance(value, Tensor) and value.dim() != 0 and value.shape != (count,):
            raise ValueError(
                f"{name} has shape {tuple(value.shape)}; give one number, or one for each of the {count} parameter tensors "
                f"(step.per_tensor(value)): {', '.join(self._model.names)}."
            )
        return value

    def each(self, value: Setting) -> Sequence[Setting]:
        """One value of a setting for every parameter tensor."""
        if not isinstance(value, Tensor) or value.dim() == 0:
            return [value] * len(self._model.names)
        return value.unbind()

    def _differentiate(self, state: State, hyper: Hyper, batch: Any) -> tuple[Named, Named, Named]:
        """The parameters, the gradients of the training loss, and the statistics and buffers afterwards."""
        own, inside = _besides(state), transformed()
        record = inside or torch.is_grad_enabled()
        attention = attention_for_a_graph()

        def loss(parameters: Named) -> tuple[Tensor, tuple[Tensor, Named]]:
            with attention:
                value, after = self._model.train(lambda module: self.loss(module, batch, hyper), parameters, own)
            _check_loss(value)
            return value.reshape(()), (value.detach(), after)

        parameters: Named = state["parameters"]
        if inside:
            gradients, (_, after) = torch.func.grad(loss, has_aux=True)(parameters)
            return parameters, gradients, after
        with torch.enable_grad():
            inputs = {n: p if record and p.requires_grad else p.detach().requires_grad_() for n, p in parameters.items()}
            value, (shown, after) = loss(inputs)
            if not value.requires_grad:
                raise ValueError("the training loss does not depend on the parameters: is there a detach() or no_grad() in it?")
            self._model.check_captured(value)
            found = torch.autograd.grad(value, list(inputs.values()), create_graph=record, materialize_grads=True)
        _check_dense(inputs, found)
        self.last_loss[:] = [shown]
        torch.clear_autocast_cache()  # under an autocast around the training it would keep the weights of every step
        if not record:
            return parameters, dict(zip(inputs, found, strict=True)), {n: tensor.detach() for n, tensor in after.items()}
        return inputs, dict(zip(inputs, found, strict=True)), after


COUNT = "steps taken"
"""Where Adam counts its steps, among the buffers."""


def _besides(state: State) -> Named:
    """What of a state is the module's besides its parameters."""
    return {**state["statistics"], **{name: tensor for name, tensor in state["buffers"].items() if name != COUNT}}


def _check_loss(value: Any) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"loss(model, batch, hyper) must return one number as a tensor; got {got}. Take a mean.")


def _check_dense(parameters: Named, gradients: Sequence[Tensor]) -> None:
    sparse = [name for name, gradient in zip(parameters, gradients, strict=True) if gradient.layout is not torch.strided]
    if sparse:
        raise ValueError(f"the gradient of {', '.join(sparse)} is sparse, which has no second derivative; use sparse=False.")


def plus(a: Tensor, scale: Setting, b: Tensor) -> Tensor:
    """a + scale·b in one pass, and no pass at all where the scale is the number zero."""
    if isinstance(scale, Tensor):
        return torch.addcmul(a, scale, b)
    return torch.add(a, b, alpha=scale) if scale else a


@dataclass(frozen=True, eq=False)
class SGD(Optimiser):
    """Gradient descent with momentum: m ← βm − (1−β)g, p ← p + αm, where g = ∂loss/∂p + λp.

    α is `rate`, β `momentum`, λ `decay`. At a steady state m = g = 0, so that it depends on λ and on whatever the loss depends
    on, but not on α and β: these need "forward" or "bptt". With rate ᾱ, `torch.optim.SGD(lr=ᾱ(1−β), momentum=β)` takes the
    same steps. One gradient of the loss a step. With `compile=True` steps that leave no graph (all but the last of an implicit
    method, those before TBPTT's) are compiled: two to three times faster on small networks, after half a minute.
    Maclaurin, Duvenaud and Adams 2015.

    >>> step = SGD(nn.Linear(2, 1), lambda model, batch, hyper: model(batch).square().mean(), rate=0.1)
    >>> state = step(step.initial(), {"decay": torch.tensor(0.01)}, torch.ones(4, 2))
    >>> sorted(state), step.names
    (['buffers', 'momentum', 'parameters', 'statistics'], ['weight', 'bias'])
    """

    rate: Setting = 0.1
    momentum: Setting = 0.0
    decay: Setting = 0.0
    slots: ClassVar[tuple[str, ...]] = ("momentum",)
    settings: ClassVar[tuple[str, ...]] = ("rate", "momentum", "decay")

    def move(self, parameters: Named, gradients: Named, state: State, hyper: Hyper) -> State:
        rate, momentum, decay = (self.setting(name, hyper) for name in self.settings)
        values = (self.each(value) for value in (rate, momentum, momentum - 1, decay))
        moved: dict[str, Named] = {"parameters": {}, "momentum": {}}
        for (name, p), a, beta, less, d in zip(parameters.items(), *values, strict=True):
            g = plus(gradients[name], d, p)
            m = plus(beta * state["momentum"][name], less, g)
            moved["momentum"][name], moved["parameters"][name] = m, plus(p, a, m)
        return moved


@dataclass(frozen=True, eq=False)
class Descent(Optimiser):
    """p ← p − α(∂loss/∂p + λp): the plainest map whose steady states are the minima, whatever optimiser has found them."""

    rate: Setting = 0.1
    decay: Setting = 0.0
    settings: ClassVar[tuple[str, ...]] = ("rate", "decay")

    def move(self, parameters: Named, gradients: Named, state: State, hyper: Hyper) -> State:
        rate = self.setting("rate", {})
        rates = self.each(-(rate.detach() if isinstance(rate, Tensor) else rate))
        decays = self.each(self.setting("decay", hyper))
        new = {n: plus(p, a, plus(gradients[n], d, p)) for (n, p), a, d in zip(parameters.items(), rates, decays, strict=True)}
        return {"parameters": new}
