"""Minima of energies by a torch optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.linear.rows import norm, over
from steadygrad.roots.newton import combine
from steadygrad.state import State, leaves_of, map_state
from steadygrad.update import Update, update_behind
from steadygrad.watch import Iterate, Iterates


def lbfgs(parameters: list[Tensor]) -> torch.optim.Optimizer:
    """L-BFGS with a line search: twenty steps a call."""
    return torch.optim.LBFGS(parameters, line_search_fn="strong_wolfe", tolerance_grad=0.0, tolerance_change=0.0)


@dataclass(frozen=True, repr=False)
class Minimise(FixedPointSolver):
    """Lower an energy by a torch optimiser until the step to its minimum, ‖∇E‖ over the curvature met, is small.

    `optimiser` makes one from a list of tensors: `lambda p: torch.optim.Adam(p, lr=0.1)`; by default L-BFGS. The curvature
    is that of the last step, so that the tolerance has the units of h. For energies that come as such, through
    `sg.minimum`.
    """

    max_steps: int = 100
    rtol: float = 1e-6
    optimiser: Callable[[list[Tensor]], torch.optim.Optimizer] = lbfgs

    def iterates(self, update: Callable[[Tensor], Tensor], h: Tensor) -> Iterates:
        gradient = h - update(h)
        while True:
            state = h.detach().clone().requires_grad_()
            optimiser = self.optimiser([state])
            closure = _closure(update_behind(update), state, optimiser)
            rows: list[int] | None = None
            while rows is None:
                with torch.enable_grad():
                    optimiser.step(closure)
                new = state.detach().clone()
                after = new - update(new)
                curvature = over(norm(after - gradient), norm(new - h))
                rows = yield Iterate(new, lambda g=after, c=curvature: over(g, c))
                h, gradient = new, after
            h, gradient = h[rows], gradient[rows]


def _closure(update: Update, state: Tensor, optimiser: torch.optim.Optimizer) -> Callable[[], float]:
    if not isinstance(update.function, EnergyStep):
        raise TypeError("Minimise lowers an energy: use it with sg.minimum(energy, h0, ...).")
    energy = update.function.energy
    layout = update.layout

    def closure() -> float:
        optimiser.zero_grad()
        value = energy(layout.nest(layout.split(state)), *update.args).sum()
        (state.grad,) = torch.autograd.grad(value, state)
        return float(value.detach())

    return closure


@dataclass(frozen=True)
class EnergyStep:
    """h − ∇E(h): the update whose steady states are the stationary points of an energy."""

    energy: Callable[..., Tensor]

    def __call__(self, h: State, *args: Any) -> State:
        recorded = torch.is_grad_enabled()
        with torch.enable_grad():
            if not (recorded and all(leaf.requires_grad for leaf in leaves_of(h))):
                h = map_state(lambda leaf: leaf.detach().requires_grad_(), h)
            value = self.energy(h, *args)
            if not isinstance(cast("object", value), Tensor):
                raise TypeError(f"energy must return a tensor, one number or one a problem; got {type(value).__name__}.")
            leaves = leaves_of(h)
            grads = torch.autograd.grad(value.sum(), leaves, create_graph=recorded, materialize_grads=True)
        remaining = iter(grads)
        gradient = map_state(lambda _: next(remaining), h)
        return combine(h, gradient, lambda a, b: a - b)
