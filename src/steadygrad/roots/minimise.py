"""Minima of energies by a torch optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import FixedPointSolver
from steadygrad.linear import MINRES
from steadygrad.linear.rows import norm
from steadygrad.method import check_count
from steadygrad.roots.newton import combine, newton_step
from steadygrad.state import State, leaves_of, map_state
from steadygrad.update import Update, update_behind
from steadygrad.watch import Iterate, Iterates


def lbfgs(parameters: list[Tensor]) -> torch.optim.Optimizer:
    """L-BFGS with a line search, one step a call."""
    return torch.optim.LBFGS(parameters, max_iter=1, tolerance_grad=0.0, tolerance_change=0.0, line_search_fn="strong_wolfe")


@dataclass(frozen=True, repr=False)
class Minimise(FixedPointSolver):
    """Lower an energy by a torch optimiser until the Newton step that is left is small; that step is taken if it helps.

    `optimiser` makes one from a list of tensors: `lambda p: torch.optim.Adam(p, lr=0.1)`; by default L-BFGS. After every
    `every` of its steps the Hessian equation is solved by MINRES, so that the tolerance has the units of h whatever those of
    the energy, and a flat or unbounded energy does not pass for solved. For one problem, through `sg.minimum`.
    """

    max_steps: int = 100
    rtol: float = 1e-6
    optimiser: Callable[[list[Tensor]], torch.optim.Optimizer] = lbfgs
    every: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("every", self.every, least=1)

    def iterates(self, update: Callable[[Tensor], Tensor], h: Tensor) -> Iterates:
        behind = update_behind(update)
        if h.shape[0] > 1:
            raise ValueError("Minimise runs one optimiser and would couple the problems of a batch; use forward=Newton().")
        update(h)
        state = h.detach().clone().requires_grad_()
        optimiser = self.optimiser([state])
        closure = _closure(behind, state, optimiser)
        while True:
            for _ in range(self.every):
                with torch.enable_grad():
                    optimiser.step(closure)
            new = state.detach().clone()
            f = update(new) - new
            d, length = newton_step(update, MINRES(), new, f)
            polished = new + d
            if norm(update(polished) - polished) < norm(f):
                new = polished
                with torch.no_grad():
                    state.copy_(new)
            yield Iterate(new, lambda length=length: length)


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
