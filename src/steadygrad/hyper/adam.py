"""Adam as a map from state to state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from steadygrad.hyper.model import Named
from steadygrad.hyper.optimiser import COUNT, Descent, Optimiser, Setting, plus
from steadygrad.hyper.problem import Hyper
from steadygrad.state import State

STAND_IN = 0.1
"""The rate of the gradient descent that stands in for Adam at rest. It cancels: I − J and ∂F/∂θ are both proportional to it, so
that it decides how fast a series converges and not what to."""


@dataclass(frozen=True, eq=False)
class Adam(Optimiser):
    """Adam: m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², p ← p − α m̂/(√v̂ + ε), hats for the correction of the start.

    g = ∂loss/∂p + λp with `decay` λ, or p ← p − αλp besides with `decoupled=True` (AdamW). The values are those of torch's.
    At a minimum v = 0 and the step is scaled by 1/ε, so its own J is useless there: implicit methods take the J of plain
    gradient descent instead, whose steady states are the same (not so for AdamW, which keeps its own). Kingma and Ba 2015.

    >>> step = Adam(torch.nn.Linear(2, 1), lambda model, batch, hyper: model(batch).square().mean(), rate=0.1)
    >>> state = step(step.initial(), {"decay": torch.tensor(0.01)}, torch.ones(4, 2))
    >>> sorted(state)
    ['buffers', 'mean', 'parameters', 'square', 'statistics']
    """

    rate: Setting = 1e-3
    beta1: Setting = 0.9
    beta2: Setting = 0.999
    decay: Setting = 0.0
    eps: float = 1e-8
    decoupled: bool = False
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")
    settings: ClassVar[tuple[str, ...]] = ("rate", "beta1", "beta2", "decay")

    def initial(self) -> State:
        state = super().initial()
        device = next(iter(state["parameters"].values())).device
        return {**state, "buffers": {**state["buffers"], COUNT: torch.tensor(0, device=device)}}

    def at_rest(self) -> Optimiser | None:
        return None if self.decoupled else Descent(self.model, self.loss, rate=STAND_IN, decay=self.decay)

    def move(self, parameters: Named, gradients: Named, state: State, hyper: Hyper) -> State:
        rate, beta1, beta2, decay = (self.setting(name, hyper) for name in self.settings)
        count = state["buffers"][COUNT] + 1
        t = count.to(torch.promote_types(next(iter(parameters.values())).dtype, torch.float32))  # 0.999 is 1 in bfloat16
        kept = 1 - rate * decay if self.decoupled else 1.0
        coupled = 0.0 if self.decoupled else decay
        values = (-rate / (1 - beta1**t), beta1, 1 - beta1, beta2, 1 - beta2, 1 / (1 - beta2**t), kept, coupled)
        moved: dict[str, Named] = {"parameters": {}, "mean": {}, "square": {}}
        for (name, p), a, b1, c1, b2, c2, scale, k, d in zip(parameters.items(), *map(self.each, values), strict=True):
            g = plus(gradients[name], d, p)
            m = plus(b1 * state["mean"][name], c1, g)
            v = plus(b2 * state["square"][name], c2, g * g)
            # The root of zero has no derivative; below the smallest normal number nothing is lost.
            root = (scale * v).clamp_min(torch.finfo(v.dtype).tiny).sqrt()
            moved["parameters"][name] = plus(p if not self.decoupled else k * p, a, m / (root + self.eps))
            moved["mean"][name], moved["square"][name] = m, v
        return {**moved, "buffers": {**state["buffers"], COUNT: count}}
