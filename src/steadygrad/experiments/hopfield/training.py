"""How a Hopfield network learns to store images: read-out, loss, schedule, and the gradient method in the middle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim.lr_scheduler import LambdaLR

import steadygrad.api as api
from steadygrad.experiments.hopfield.model import Hopfield
from steadygrad.fixedpoint import Picard
from steadygrad.gradient import Gradient
from steadygrad.solution import Solution

Readout = Literal["state", "sigmoid"]
Method = Literal["bptt", "tbptt", "rbp", "rbp-zeros", "cg-rbp", "neumann-rbp", "auto"]


@dataclass(frozen=True)
class Schedule:
    """How the images are learnt."""

    readout: Readout
    """"state": pixel = h, loss |h − image|, as the released code does; "sigmoid": pixel = φ(bh), loss cross-entropy."""
    passes: int
    rate: float
    """Adam's rate for A where W = A + Aᵀ; a weight of W moves by up to twice as much a step."""
    warmup: int
    """Passes over which the rate grows to its value."""
    decays: bool
    """Whether the rate then falls to zero along a cosine."""
    batch: int
    """Images a step."""
    forward: Picard

    def __post_init__(self) -> None:
        if self.readout not in get_args(Readout):
            raise ValueError(f"readout must be one of {', '.join(get_args(Readout))}; got {self.readout!r}.")
        for name in ("passes", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if not self.rate > 0:
            raise ValueError(f"rate must be positive; got {self.rate}.")
        if not 0 <= self.warmup <= self.passes:
            raise ValueError(f"warmup must lie between 0 and the {self.passes} passes; got {self.warmup}.")

    def factor(self, done: int) -> float:
        """The rate of the pass after `done` passes, relative to its full value."""
        rising = min(1.0, (done + 1) / self.warmup) if self.warmup else 1.0
        return rising * (0.5 * (1 + math.cos(math.pi * done / self.passes)) if self.decays else 1.0)


@dataclass(frozen=True)
class Pass:
    """One pass over the images."""

    number: int
    """From 1."""
    l1: float
    """Mean |pixel − image| over the images, each as it was met."""
    solution: Solution
    """The last solve, after its backward pass."""


def pixels(model: Hopfield, h: Tensor, readout: Readout) -> Tensor:
    """What the output neurons say, near 0 or 1; a pixel is set where it is at least ½."""
    out = model.output(h)
    return out if readout == "state" else torch.sigmoid(model.slope * out)


def objective(model: Hopfield, h: Tensor, images: Tensor, readout: Readout) -> Tensor:
    """The loss: a mean over pixels and a sum over images, so that each image's ∂L/∂h is what it would be alone."""
    out = model.output(h)
    if readout == "state":
        return (out - images).abs().mean(dim=1).sum()
    return binary_cross_entropy_with_logits(model.slope * out, images, reduction="sum") / model.pixels


def cotangent(model: Hopfield, h: Tensor, images: Tensor, readout: Readout) -> Tensor:
    """‖∂L/∂h‖ of each image: the right-hand side b of the adjoint equation, against which the start z₀ of RBP must be held."""
    leaf = h.detach().requires_grad_()
    (grad,) = torch.autograd.grad(objective(model, leaf, images, readout), leaf)
    return grad.norm(dim=1)


def settle(model: Hopfield, x: Tensor, forward: Picard, gradient: Gradient) -> Solution:
    """The steady state with observed neurons clamped to x. What fails is for the caller to see, in the solution."""
    return api.steady_state(
        model, model.start(x), model.clamped(x), forward=forward, gradient=gradient, batch_dims=1, on_failure="ignore"
    )


def learn(model: Hopfield, images: Tensor, schedule: Schedule, method: Callable[[int], Gradient]) -> Iterator[Pass]:
    """Store the images, a pass a turn. `method(step)` is the gradient method of a step. Ends early if the loss is not finite."""
    # S = A + Aᵀ, and Adam moves A_ij and A_ji alike, so Adam on S with twice the rate is Adam on A; likewise for W_fo.
    optimiser = torch.optim.Adam(model.parameters(), lr=2 * schedule.rate, fused=True)
    rates = LambdaLR(optimiser, schedule.factor)
    step, solution = 0, None
    for number in range(1, schedule.passes + 1):
        total = 0.0
        for batch in images.split(schedule.batch):
            solution = settle(model, batch, schedule.forward, method(step))
            loss = objective(model, solution.value, batch, schedule.readout)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float((pixels(model, solution.value.detach(), schedule.readout) - batch).abs().mean(dim=1).sum())
            step += 1
        if solution is None:
            raise ValueError("there is no image to learn; give at least one.")
        rates.step()
        yield Pass(number, total / len(images), solution)
        if not math.isfinite(total):
            return
