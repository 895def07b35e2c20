"""Hyperparameters that stay where they make sense: positive, between bounds, or free, by parametrisation."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from steadygrad.hyper.problem import tensor_of
from steadygrad.method import Method


@dataclass(frozen=True, eq=False, repr=False)
class Constraint(Method, ABC):
    """A starting value, and the map from a free number, on which the outer optimiser works, to an allowed one."""

    value: Any

    def start(self, like: Tensor) -> Tensor:
        """The free tensor that stands for the starting value."""
        tensor = tensor_of(self.value, like)
        if tensor is None or not tensor.dtype.is_floating_point or tensor.numel() == 0:
            raise TypeError(f"{type(self).__name__} takes a number or a floating-point tensor; got {self.value!r:.60}.")
        free = self.free(tensor).clone()
        if not bool(free.isfinite().all()):
            raise ValueError(f"{type(self).__name__} cannot start at {self.value!r:.60}: {self.allowed}.")
        return free

    allowed = "it must be finite"

    def signature(self, free: Tensor) -> str:
        """What tells this constraint and start from another, in a few letters."""
        bounds = [repr(value) for key, value in vars(self).items() if key != "value"]
        start = hashlib.sha256(free.detach().double().cpu().numpy().tobytes()).hexdigest()[:12]
        return f"{type(self).__name__}({', '.join([f'start {start} of {list(free.shape)}', *bounds])})"

    @abstractmethod
    def free(self, value: Tensor) -> Tensor:
        """From an allowed value to the free number."""

    @abstractmethod
    def constrained(self, free: Tensor) -> Tensor:
        """From the free number to an allowed value."""


@dataclass(frozen=True, eq=False, repr=False)
class Free(Constraint):
    """Any number: θ = u.

    >>> Free(-3.0).constrained(Free(-3.0).start(torch.zeros(())))
    tensor(-3.)
    """

    def free(self, value: Tensor) -> Tensor:
        return value

    def constrained(self, free: Tensor) -> Tensor:
        return free.clone()


@dataclass(frozen=True, eq=False, repr=False)
class Log(Constraint):
    """Positive, on a logarithmic scale: θ = exp(u). For learning rates and weight decay.

    >>> Log(0.1).constrained(Log(0.1).start(torch.zeros(())))
    tensor(0.1000)
    """

    allowed = "it must be positive"

    def free(self, value: Tensor) -> Tensor:
        return value.log()

    def constrained(self, free: Tensor) -> Tensor:
        return free.exp()


@dataclass(frozen=True, eq=False, repr=False)
class Softplus(Constraint):
    """Positive, linear for large values: θ = log(1 + exp(u)). For loss and data weights.

    >>> Softplus(2.0).constrained(Softplus(2.0).start(torch.zeros(())))
    tensor(2.)
    """

    allowed = "it must be positive"

    def free(self, value: Tensor) -> Tensor:
        return value + (-torch.expm1(-value)).log()

    def constrained(self, free: Tensor) -> Tensor:
        return functional.softplus(free, threshold=100.0)


@dataclass(frozen=True, eq=False, repr=False)
class Logit(Constraint):
    """Between two bounds: θ = low + (high − low)·sigmoid(u). For momenta, label smoothing, probabilities.

    >>> Logit(0.75).start(torch.zeros(()))  # log(0.75 / 0.25)
    tensor(1.0986)
    """

    low: float = 0.0
    high: float = 1.0
    allowed = "it must lie strictly between low and high"

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low must be below high; got {self.low} and {self.high}.")

    def free(self, value: Tensor) -> Tensor:
        return torch.logit((value - self.low) / (self.high - self.low))

    def constrained(self, free: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * free.sigmoid()


class Parametrised:
    """All hyperparameters of a tuning: free leaves for the outer optimiser, allowed values for training."""

    def __init__(self, hyper: Mapping[str, Any], like: Tensor) -> None:
        if not isinstance(hyper, Mapping) or not hyper:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f'hyper must be a dict such as {{"decay": Log(1e-3)}}; got {hyper!r:.80}.')
        self.constraints = {name: v if isinstance(v, Constraint) else Free(v) for name, v in hyper.items()}
        self.free = {name: c.start(like).requires_grad_() for name, c in self.constraints.items()}

    def items(self) -> list[tuple[str, Constraint, Tensor]]:
        return [(name, constraint, self.free[name]) for name, constraint in self.constraints.items()]

    def values(self) -> dict[str, Tensor]:
        with torch.no_grad():
            return {name: c.constrained(self.free[name]) for name, c in self.constraints.items()}

    def gradient_norm(self) -> float:
        grads = [free.grad for free in self.free.values() if free.grad is not None]
        return math.sqrt(sum(float(grad.square().sum()) for grad in grads))

    def set_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        """The chain rule: from gradients of the allowed values to those of the free ones."""
        for name, constraint in self.constraints.items():
            free = self.free[name]
            with torch.enable_grad():
                value = constraint.constrained(free)
            (free.grad,) = torch.autograd.grad(value, free, gradients[name])

    def snapshot(self) -> dict[str, Tensor]:
        return {name: free.detach().clone() for name, free in self.free.items()}

    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, free in self.free.items():
                free.copy_(snapshot[name])
