"""Roots and minima as steady states: sg.root and sg.minimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from steadygrad.api import steady_state
from steadygrad.compiler import outside_graphs
from steadygrad.fixedpoint import FixedPointSolver
from steadygrad.gradient import Gradient
from steadygrad.roots import EnergyStep, Minimise, Newton, NewtonCG, RootStep, scale_for
from steadygrad.solution import OnFailure, Solution
from steadygrad.state import State
from steadygrad.update.levels import Below, Levels


@outside_graphs
def root(
    g: Callable[..., State],
    h0: State,
    *args: Any,
    forward: FixedPointSolver = Newton(),
    gradient: str | Gradient = "gmres",
    batch_dims: int = 0,
    derivatives: int = 1,
    on_failure: OnFailure = "warn",
    warm: Solution | None = None,
    group: Any = None,
) -> Solution:
    """Find h* with g(h*, *args) = 0 and give it a gradient: dh*/dw = −(∂g/∂h)⁻¹ ∂g/∂w.

    A root of g is a steady state of h − g(h), whose I − J is ∂g/∂h: the same adjoint, the same certificate. Needs that ∂g/∂h
    is invertible there. `group`: the state is divided over the ranks of a process group, as in `steady_state`.

    >>> import torch, steadygrad as sg
    >>> a = torch.tensor([2.0], requires_grad=True)
    >>> solution = sg.root(lambda h: h**2 - a, torch.ones(1))
    >>> solution.value.backward()
    >>> round(a.grad.item(), 4)  # 1 / (2 √2)
    0.3536
    """
    return steady_state(
        RootStep(g), h0, *args,
        forward=forward, gradient=gradient, batch_dims=batch_dims, derivatives=derivatives, on_failure=on_failure, warm=warm,
        group=group,
    )  # fmt: skip


@outside_graphs
def minimum(
    energy: Callable[..., Tensor],
    h0: State,
    *args: Any,
    forward: FixedPointSolver | None = None,
    gradient: str | Gradient = "minres",
    batch_dims: int = 0,
    derivatives: int = 1,
    on_failure: OnFailure = "warn",
    warm: Solution | None = None,
) -> Solution:
    """Find a minimum of energy(h, *args) and give it a gradient: dh*/dw = −(∇²E)⁻¹ ∂∇E/∂w.

    By default `Minimise()`, L-BFGS and a last Newton step; for batches `NewtonCG()`, which treats each problem by itself. Both
    lower the energy in every step and leave saddles and maxima along a direction of negative curvature.

    A stationary point is a steady state of h − ∇E(h), whose I − J is the Hessian: symmetric, hence solved by MINRES, or by CG
    (`gradient="cg"`) where it is positive definite. The energy returns one number, or one for each problem of a batch.

    >>> import torch, steadygrad as sg
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> solution = sg.minimum(lambda h: (h - x).square().sum(), torch.zeros(2))
    >>> solution.value.sum().backward()
    >>> [round(v, 4) for v in x.grad.tolist()]
    [1.0, 1.0]
    """
    levels = Levels.now()
    many, scale = batch_dims > 0, 1.0
    if levels is None:
        scale = scale_for(energy, h0, args)
    else:
        levels = levels.around(EnergyStep(energy), h0, args)
        many = many or bool(levels.own)
        plain = levels.plain(h0)
        with levels.cleared():
            scale = scale_for(Below(energy, args, levels), plain, ())
    search = forward or (NewtonCG() if many else Minimise())
    return steady_state(
        EnergyStep(energy, scale), h0, *args,
        forward=search, gradient=gradient, batch_dims=batch_dims, derivatives=derivatives, on_failure=on_failure, warm=warm,
    )  # fmt: skip
