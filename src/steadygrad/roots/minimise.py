"""Minima of energies by a torch optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from steadygrad.linear import MINRES
from steadygrad.method import check_count
from steadygrad.roots.curvature import away_from_a_saddle
from steadygrad.roots.newton import NewtonLike, differentiable, far_from, newton_step
from steadygrad.roots.wall import Walled
from steadygrad.state import State, leaves_of, map_state
from steadygrad.state.rows import dot, norm
from steadygrad.state.tree import combine, fill, template_of
from steadygrad.update import Update
from steadygrad.update.levels import Below, Levels, inside_transform


def lbfgs(parameters: list[Tensor]) -> torch.optim.Optimizer:
    """L-BFGS with a line search, one step a call."""
    # With max_iter=1 torch allows one evaluation by default, with which its line search cannot move.
    return torch.optim.LBFGS(
        parameters, max_iter=1, max_eval=25, tolerance_grad=0.0, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )


class Lowered(NamedTuple):
    """A state and how far it is from a minimum; None before the first step."""

    h: Tensor
    left: Tensor | None
    optimiser: Any
    closure: Any


@dataclass(frozen=True, repr=False)
class Minimise(NewtonLike):
    """Lower an energy by a torch optimiser until the Newton step that is left is small; that step is taken if it helps.

    `optimiser` makes one from a list of tensors: `lambda p: torch.optim.Adam(p, lr=0.1)`; by default L-BFGS. After every
    `every` of its steps the Hessian equation is solved by MINRES, so that the tolerance has the units of h whatever those of
    the energy, and a flat or unbounded energy does not pass for solved. A saddle or a maximum is left along its direction of
    negative curvature. For one problem, through `sg.minimum`.

    >>> import torch, steadygrad as sg
    >>> energy = lambda h: (h - 2).square().sum() + (h - 2).pow(4).sum()
    >>> by_adam = sg.Minimise(max_steps=500, optimiser=lambda parameters: torch.optim.Adam(parameters, lr=0.1))
    >>> round(sg.minimum(energy, torch.zeros(1), forward=by_adam).value.item(), 4)
    2.0
    """

    max_steps: int = 100
    rtol: float = 1e-6
    optimiser: Callable[[list[Tensor]], torch.optim.Optimizer] = lbfgs
    every: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("every", self.every, least=1)

    def init(self, problem: Callable[[Tensor], Tensor], start: Tensor) -> Lowered:
        update = differentiable(problem)
        if start.shape[0] > 1:
            raise ValueError("Minimise runs one optimiser and would couple the problems of a batch; use forward=NewtonCG().")
        problem(start)
        moving = start.detach().clone().requires_grad_()
        optimiser = self.optimiser([moving])
        return Lowered(start, None, optimiser, Walled(energy_of(update), update, moving, optimiser))

    def step(self, problem: Callable[[Tensor], Tensor], state: Lowered) -> Lowered:
        moving: Tensor = state.optimiser.param_groups[0]["params"][0]
        for _ in range(self.every):
            with torch.enable_grad():
                state.optimiser.step(state.closure)
        new, left = self._polished(problem, state.closure.inside(moving.detach().clone()))
        with torch.no_grad():
            moving.copy_(new)
        return state._replace(h=new, left=left)

    def _polished(self, problem: Callable[[Tensor], Tensor], h: Tensor) -> tuple[Tensor, Tensor]:
        """The state after a Newton step, if that helps, and how far it is from a minimum."""
        f = downhill(problem, h)
        d, left = newton_step(differentiable(problem), MINRES(), h, f)
        small = self.rtol * norm(h) + self.atol
        if dot(d, f) < 0:  # dᵀHd is negative: the step leads up to a saddle or a maximum
            d, left = torch.zeros_like(d), far_from(h, f)
        new = h + d if norm(downhill(problem, h + d)) < norm(f) else h
        if norm(left) <= small or not f.any():
            escape = away_from_a_saddle(differentiable(problem), new)
            if escape.any():
                return _inside(problem, new, escape), far_from(h, f)
        return new, left


def energy_of(update: Update) -> Callable[..., Tensor]:
    """The energy whose steady states an update has."""
    if not isinstance(update.function, EnergyStep):
        raise TypeError("this solver lowers an energy: use it with sg.minimum(energy, h0, ...).")
    return update.function.energy


def downhill(problem: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """−∇E(h), in flat form. F(h) − h is the same but for rounding, which hides it where h is large."""
    update = differentiable(problem)
    energy, layout = energy_of(update), update.layout
    with torch.enable_grad():
        leaves = [leaf.detach().requires_grad_() for leaf in layout.split(h)]
        value = energy(layout.nest(leaves), *update.args)
        grads = torch.autograd.grad(value.sum(), leaves, materialize_grads=True)
    assert isinstance(update.function, EnergyStep)
    return -update.function.scale * layout.flatten([nan_outside(value, grad) for grad in grads])


def nan_outside(value: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of an energy, NaN for the problems whose energy is not finite.

    Derivatives go on beyond the domain (that of log h is 1/h for h < 0 too), and may vanish there, where there is no minimum.
    """
    finite = value.detach().isfinite()
    if bool(finite.all()):
        return gradient
    own = gradient.shape[: value.dim()] == value.shape
    mask = finite.view(*value.shape, *[1] * (gradient.dim() - value.dim())) if own else finite.all()
    return torch.where(mask, gradient, torch.nan)


INSIDE = 20
"""How often a step that leaves the domain of the energy is halved."""


def _inside(problem: Callable[[Tensor], Tensor], h: Tensor, step: Tensor) -> Tensor:
    """h + step, or the half, the quarter, … of it that ends where the energy is finite."""
    for _ in range(INSIDE):
        if downhill(problem, h + step).isfinite().all():
            break
        step = step / 2
    return h + step


@dataclass(frozen=True)
class EnergyStep:
    """h − ∇E(h): the update whose steady states are the stationary points of an energy."""

    energy: Callable[..., Tensor]
    scale: float = 1.0
    """What ∇E is multiplied by, so that I − J, the Hessian, is of the size of one: else rounding swallows it."""

    def below(self, levels: Levels, args: tuple[Any, ...]) -> EnergyStep:
        """The step of the same energy on plain tensors, below transforms of torch.func."""
        return EnergyStep(Below(self.energy, args, levels), self.scale)

    def __call__(self, h: State, *args: Any) -> State:
        if inside_transform():  # autograd's own graph knows nothing of the levels

            def total(h: State) -> Tensor:
                return self._energy(h, *args).sum()

            return combine(self._moved, h, torch.func.grad(total)(h))
        recorded = torch.is_grad_enabled()
        with torch.enable_grad():
            if not (recorded and all(leaf.requires_grad for leaf in leaves_of(h))):
                h = map_state(lambda leaf: leaf.detach().requires_grad_(), h)
            value = self._energy(h, *args)
            leaves = leaves_of(h)
            grads = torch.autograd.grad(value.sum(), leaves, create_graph=recorded, materialize_grads=True)
            grads = [nan_outside(value, grad) for grad in grads]
        return combine(self._moved, h, fill(template_of(h), grads))

    def _moved(self, h: Tensor, gradient: Tensor) -> Tensor:
        return h - self.scale * gradient

    def _energy(self, h: State, *args: Any) -> Tensor:
        value = self.energy(h, *args)
        if not isinstance(cast("object", value), Tensor):
            raise TypeError(f"energy must return a tensor, one number or one a problem; got {type(value).__name__}.")
        return value


def scale_for(energy: Callable[..., Tensor], h0: State, args: tuple[Any, ...]) -> float:
    """1 / the size of the Hessian, by the change of ∇E along itself; 1 where that is not far from it, or not to be had."""
    leaves = [leaf.detach() for leaf in leaves_of(h0)]
    step = EnergyStep(energy)
    with torch.no_grad():
        slope = [leaf - image for leaf, image in zip(leaves, leaves_of(step(h0, *args)), strict=True)]
        size = float(torch.stack([part.double().square().sum() for part in slope]).sum().sqrt())
        length = float(torch.stack([leaf.double().square().sum() for leaf in leaves]).sum().sqrt()) or 1.0
        if not 0 < size < math.inf:
            return 1.0
        ahead = [leaf - NUDGE * length * part / size for leaf, part in zip(leaves, slope, strict=True)]
        there = fill(template_of(h0), ahead)
        after = [leaf - image for leaf, image in zip(leaves_of(there), leaves_of(step(there, *args)), strict=True)]
        change = float(torch.stack([(a - b).double().square().sum() for a, b in zip(after, slope, strict=True)]).sum().sqrt())
    curvature = change / (NUDGE * length)
    return 1.0 if not 0 < curvature < math.inf or USUAL[0] < curvature < USUAL[1] else 1 / curvature


NUDGE = 1e-2
"""How far the probe for the size of the Hessian goes, relative to the state."""
USUAL = (1e-3, 1e3)
"""Curvatures of which rounding in I − J leaves enough digits."""
