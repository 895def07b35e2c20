"""How a Hopfield network learns to store images: read-out, loss, schedule, and the gradient method in the middle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim.lr_scheduler import LambdaLR

import steadygrad as sg
from steadygrad import Picard, Solution
from steadygrad.models.hopfield.network import Hopfield
from steadygrad.models.onward import Gradient, onward

Readout = Literal["state", "sigmoid"]


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
    previous: bool = False
    """Whether implicit methods linearise at h_{T−1}, see `settle`; `forward` then ends there."""
    shuffle: int | None = None
    """The seed of the order of the images, drawn anew for every pass; None: as they come."""

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


def settle(model: Hopfield, x: Tensor, forward: Picard, gradient: Gradient, previous: bool = False) -> tuple[Solution, Tensor]:
    """The steady state with observed neurons clamped to x, and the state to read out. What fails is in the solution.

    `previous`: the solution is h_{T−1}, at which an implicit method then takes J, and the state is h_T, whose cotangent it
    gets: Listing 1 of Liao et al. 2018 and their code. Otherwise both are h_T.
    """
    c = model.clamped(x)
    solution = sg.steady_state(model, model.start(x), c, forward=forward, gradient=gradient, batch_dims=1, on_failure="ignore")
    return solution, onward(solution.value, lambda h: model(h, c)) if previous else solution.value


@torch.no_grad()
def retrieve(model: Hopfield, x: Tensor, steps: int) -> Tensor:
    """h after exactly so many updates with the observed neurons clamped to x."""
    h, c = model.start(x), model.clamped(x)
    for _ in range(steps):
        h = model(h, c)
    return h


class Learning:
    """Store the images, a pass a turn of its iterator. `method(step)` is the gradient method of a step.

    Ends early if the loss is not finite. Between two passes it can be saved, and go on in another process.
    """

    def __init__(self, model: Hopfield, images: Tensor, schedule: Schedule, method: Callable[[int], Gradient]) -> None:
        if not len(images):
            raise ValueError("there is no image to learn; give at least one.")
        self.model, self.images, self.schedule, self.method = model, images, schedule, method
        # S = A + Aᵀ, and Adam moves A_ij and A_ji alike, so Adam on S with twice the rate is Adam on A; likewise for W_fo.
        self.optimiser = torch.optim.Adam(model.parameters(), lr=2 * schedule.rate, fused=True)
        self.rates = LambdaLR(self.optimiser, lambda done: schedule.factor(done))
        self.done = self.step = 0

    def __iter__(self) -> Iterator[Pass]:
        while self.done < self.schedule.passes:
            total, solution = 0.0, None
            for batch in self._images().split(self.schedule.batch):
                solution, l1 = self._learn(batch)
                total += l1
            assert solution is not None
            self.rates.step()
            self.done += 1
            yield Pass(self.done, total / len(self.images), solution)
            if not math.isfinite(total):
                return

    def _images(self) -> Tensor:
        """In the order of this pass, which depends on its number alone."""
        if self.schedule.shuffle is None:
            return self.images
        generator = torch.Generator().manual_seed(1_000_003 * (self.schedule.shuffle + 1) + self.done)
        return self.images[torch.randperm(len(self.images), generator=generator)]

    def _learn(self, batch: Tensor) -> tuple[Solution, float]:
        """One step. Its solution, and the sum of the images' mean |pixel − image|."""
        schedule = self.schedule
        solution, h = settle(self.model, batch, schedule.forward, self.method(self.step), schedule.previous)
        self.optimiser.zero_grad()
        objective(self.model, h, batch, schedule.readout).backward()
        self.optimiser.step()
        self.step += 1
        return solution, float((pixels(self.model, h.detach(), schedule.readout) - batch).abs().mean(dim=1).sum())

    def state_dict(self) -> dict[str, Any]:
        parts = {"model": self.model, "optimiser": self.optimiser, "rates": self.rates}
        return {"done": self.done, "step": self.step, **{name: part.state_dict() for name, part in parts.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done, self.step = state["done"], state["step"]
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.rates.load_state_dict(state["rates"])
