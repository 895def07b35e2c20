"""Newton-CG: minima of energies, each problem of a batch by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.method import check_count
from steadygrad.roots.curvature import away_from_a_saddle
from steadygrad.roots.minimise import downhill
from steadygrad.roots.newton import NewtonLike, Stepped, differentiable, far_from, halved
from steadygrad.state.rows import dot, norm, ratio
from steadygrad.update.jacobian import Jacobian

HALVINGS = 20
"""How often a step that does not lower the energy is halved."""
FORCING = 0.1
"""The largest share of the gradient that the inner solve may leave; less near the minimum, where more pays."""


@dataclass(frozen=True, repr=False)
class NewtonCG(NewtonLike):
    """Lower an energy along d with ∇²E d ≈ −∇E by conjugate gradients, each problem of a batch by itself.

    A step must lower the energy, or it is halved; where the energy curves down the direction of that is followed, so that
    the search ends at a minimum and not at a saddle or a maximum. Stops once ‖d‖ ≤ rtol·‖h‖ + atol. Through `sg.minimum`.
    Nocedal and Wright 2006, Algorithm 7.1.

    >>> import torch, steadygrad as sg
    >>> starts = torch.tensor([[0.1], [-3.0]])  # a double well, from two sides, as a batch
    >>> energy = lambda h: (h.square() - 1).square().sum(1)
    >>> sg.minimum(energy, starts, batch_dims=1, forward=sg.NewtonCG()).value.round(decimals=3).tolist()
    [[1.0], [-1.0]]
    """

    max_steps: int = 100
    rtol: float = 1e-6
    inner: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("inner", self.inner, least=1)

    def init(self, problem: Callable[[Tensor], Tensor], start: Tensor) -> Stepped:
        problem(start)  # the first call checks what F returns
        return Stepped(start, downhill(problem, start), None)

    def step(self, problem: Callable[[Tensor], Tensor], state: Stepped) -> Stepped:
        h, f, _ = state
        d, solved = _direction(Jacobian(differentiable(problem), h), f, self.inner)
        left = torch.where(solved, d, far_from(h, f))
        arrived = solved & (norm(d) <= self.rtol * norm(h) + self.atol)
        if arrived.any():
            escape = torch.where(arrived, away_from_a_saddle(differentiable(problem), h), torch.zeros_like(h))
            caught = escape.any(dim=1, keepdim=True)
            d, left = torch.where(caught, escape, d), torch.where(caught, far_from(h, f), left)
        return Stepped(*_lower(problem, h, d, f), left)


def _direction(jacobian: Jacobian, f: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """d with (I − J) d ≈ f by conjugate gradients, and whether it was had without negative curvature, row by row.

    A row that meets negative curvature keeps the direction it has, or f itself in the first step.
    """
    d, r, p = torch.zeros_like(f), f, f
    gamma = dot(r, r)
    goal = torch.clamp(norm(f), max=FORCING).square() * gamma
    goal = torch.minimum(goal, FORCING**2 * gamma)
    curved = torch.zeros_like(gamma, dtype=torch.bool)
    for _ in range(limit):
        going = ~curved & (gamma > goal)
        if not going.any():
            break
        q = p - jacobian.vjp(p)
        bend = dot(p, q)
        curved = curved | (going & (bend <= 0))
        alpha = torch.where(going & ~curved, ratio(gamma, bend), torch.zeros_like(gamma))
        d = d + alpha * p
        r = r - alpha * q
        after = torch.where(going, dot(r, r), gamma)
        p = torch.where(going, r + ratio(after, gamma) * p, p)
        gamma = after
    nothing = ~d.any(dim=1, keepdim=True)
    return torch.where(curved & nothing, f, d), ~curved & d.isfinite().all(dim=1, keepdim=True) & (gamma <= goal)


def _lower(problem: Callable[[Tensor], Tensor], h: Tensor, d: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """h + t·d for the largest t of 1, ½, ¼, … that lowers the energy and leaves it finite, row by row, and −∇E there.

    With f = −∇E the energy changes by −t·d·(f₀ + f₁)/2, to third order in t: no value of the energy is needed, so that it may
    be one number for the whole batch.
    """

    def rises(after: Tensor) -> Tensor:
        up = ~(dot(d, f + after) > 0) & d.any(dim=1, keepdim=True)
        up = up & (norm(after) > norm(f))  # at the minimum itself rounding decides the sign
        return up | ~after.isfinite().all(dim=1, keepdim=True)  # outside of the domain of the energy

    return halved(h, d, lambda at: downhill(problem, at), rises, HALVINGS)
