"""A Krylov space, for each row: an orthonormal basis that grows by several powers at once, and the smallest residual over it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.norms import Mask, Numbers
from steadygrad.linear.basis import ROOM, Basis
from steadygrad.linear.system import System, precision_of
from steadygrad.state.rows import norm, ratio

BREAKDOWN = 10.0
"""A new direction of so many roundings of the product is none: the space is full."""
TOGETHER = (4, 16)
"""Powers of Jᵀ that are made orthogonal together, at first and at the most; of large vectors one, which is then as fast."""
LEAST = 0.02
"""The share of a power that must be new, also to those before it: what is new is rounded by that much more. Where products are
themselves coarse, the fourth root of their rounding."""
INDEPENDENT = 0.25
"""Powers of which this share is new, also to those before them, are independent enough for more of them together."""


class Krylov(NamedTuple):
    """An orthonormal basis V of the Krylov space of r = b − (I−Jᵀ)z, and what I−Jᵀ does there: it takes V P to V (P − Q)."""

    z: Tensor
    """Where the space was begun."""
    beta: Tensor
    """‖r‖, in float64."""
    basis: Basis
    P: Tensor
    """The vectors that were multiplied with Jᵀ, in terms of the basis: upper triangular (problems, k + 1, k), in float64."""
    Q: Tensor
    """Their products, which are the next ones or new directions."""
    normal: Tensor
    """The unit vectors u with uᵀ(P − Q) = 0, (problems, k + 1), in float64: the smallest residual is β u₀ V u."""
    together: int
    """Powers to be made orthogonal together."""

    @classmethod
    def of(cls, z: Tensor, r: Tensor) -> Krylov:
        """The space spanned by r alone."""
        beta = norm(r)
        one = torch.ones_like(beta, dtype=torch.float64)
        nothing = one.new_zeros(len(one), 1, 0)
        return cls(z, beta.double(), Basis.of(ratio(r, beta).unsqueeze(1)), nothing, nothing, one, min(TOGETHER[0], _most(r)))

    @classmethod
    def over(cls, z: Tensor, beta: Tensor, basis: Basis, on_it: Numbers) -> Krylov:
        """The space of r, Jᵀr, … which have the coefficients `on_it` on a basis, upper triangular (problems, k + 1, k + 1)."""
        normal = normal_to(on_it)
        normal /= numpy.linalg.norm(normal, axis=1, keepdims=True)
        P, Q, u = (torch.from_numpy(n).to(z.device) for n in (on_it[:, :, :-1], on_it[:, :, 1:], normal))
        return cls(z, beta, basis, P, Q, u, min(P.shape[2], _most(z)))

    @property
    def steps(self) -> int:
        return self.P.shape[2]

    def extended(self, problem: System, steps: int) -> Krylov:
        """The space with so many more directions, for a product each; with fewer where it is solved before."""
        space, end = self, self.steps + steps
        while (left := end - space.steps) > 0 and not space.solved:
            powers = _powers(problem, space.basis.last, math.ceil(left / math.ceil(left / space.together)))
            space = space.with_powers(torch.stack(powers, dim=1), precision_of(problem.jacobian, powers[0]))
        return space

    def with_powers(self, powers: Tensor, precision: torch.dtype) -> Krylov:
        """The space with Jᵀv, (Jᵀ)²v, … of its last vector v, (problems, some, size), where products are of that precision.

        They are made orthogonal all at once (Hoemmen 2010), which in small states takes hardly longer than one of them. Where
        they are nearly dependent rounding would spoil the last ones: only the first few are taken, and no more from there on.
        """
        count = powers.shape[1]
        found = self.basis.absorb_several(powers, least_new(precision)) if count > 1 else None
        if found is None:
            basis, column, length = self.basis.absorb(powers[:, 0], relative=BREAKDOWN * torch.finfo(powers.dtype).eps)
            images = torch.cat([column, length], dim=1).double().cpu().numpy()[:, :, None]
            share = float((abs(images[:, -1]) / numpy.linalg.norm(images, axis=1)).min()) if self.together == 1 else 0.0
        else:
            basis, images, share = found
        together = self.together if images.shape[2] == count else images.shape[2]
        if share > INDEPENDENT:
            together = min(2 * together, _most(self.z))
        before = numpy.zeros_like(images)
        before[:, self.steps, 0] = 1.0
        before[:, :, 1:] = images[:, :, :-1]
        normal = _turned(self.normal.cpu().numpy(), before - images)
        device = self.P.device
        P, Q = (
            torch.from_numpy(_wider(known.cpu().numpy(), new)).to(device) for known, new in ((self.P, before), (self.Q, images))
        )
        return Krylov(self.z, self.beta, basis, P, Q, torch.from_numpy(normal).to(device), together)

    @property
    def solved(self) -> bool:
        """Whether the smallest residuals are roundings of the first."""
        return self.steps > 0 and bool((self.normal[:, :1].abs() <= BREAKDOWN * torch.finfo(self.z.dtype).eps).all())

    def hessenberg(self) -> Numbers:
        """H with (I−Jᵀ) V_k = V_{k+1} H, (problems, k + 1, k)."""
        return hessenberg_of(self.P.cpu().numpy(), self.Q.cpu().numpy())

    def residual(self) -> Tensor:
        """The norms of the smallest residuals, a column."""
        return self.beta * self.normal[:, :1].abs()

    @property
    def fallen(self) -> Numbers:
        """The smallest residuals after no step, one, two, …, over the first: (problems with a residual, k + 1)."""
        return fallen_along(self.normal.cpu().numpy())[self.unsolved]

    @property
    def unsolved(self) -> Mask:
        """Which problems have a residual at all."""
        return self.beta.cpu().numpy()[:, 0] > 0

    def value(self) -> Tensor:
        """argmin ‖b − (I−Jᵀ)z‖ over the space."""
        if not self.steps:
            return self.z
        P = self.P.cpu().numpy()
        c = smallest_over(P - self.Q.cpu().numpy(), self.beta.cpu().numpy()[:, 0])
        return self.z + self.basis.combine(torch.from_numpy((P @ c[:, :, None])[:, :, 0]).to(self.z.device))

    def smallest(self) -> tuple[Tensor, Tensor]:
        """Where the residual is the smallest over the space, and that residual: what a new space may begin with."""
        return self.value(), self.basis.combine(self.beta * self.normal[:, :1] * self.normal)


def _most(vector: Tensor) -> int:
    """Powers like this vector that may be made orthogonal together."""
    return max(1, min(TOGETHER[1], ROOM // max(vector.numel(), 1)))


def least_new(precision: torch.dtype) -> float:
    """The share of a power that must be new, where products are of that precision."""
    return max(LEAST, torch.finfo(precision).eps ** 0.25)


def hessenberg_of(P: Numbers, Q: Numbers) -> Numbers:
    """H with (I−Jᵀ) V_k = V_{k+1} H, where I−Jᵀ takes V P to V (P − Q)."""
    return over_upper(P - Q, _regular(P[:, :-1]))


def over_upper(matrix: Numbers, upper: Numbers) -> Numbers:
    """A matrix times the inverse of upper triangular ones, (problems, count, count): a third of the time of inverting these."""
    found: Numbers = torch.linalg.solve_triangular(*map(torch.from_numpy, (upper, matrix)), upper=True, left=False).numpy()
    return found


def smallest_over(columns: Numbers, beta: Numbers) -> Numbers:
    """argmin over c of ‖β e₁ − columns c‖, (problems, count)."""
    q, upper = numpy.linalg.qr(columns)
    out = upper.diagonal(axis1=1, axis2=2)[:, :, None] == 0  # a row that is solved has a zero column: leave it out
    target = numpy.where(out, 0.0, beta[:, None, None] * q[:, :1, :].mT)
    return numpy.linalg.solve(_regular(upper), target)[:, :, 0].astype(numpy.float64, copy=False)


def normal_to(on_it: Numbers) -> Numbers:
    """The vectors u normal to what I − Jᵀ makes of terms of the series, from these in terms of a basis, upper triangular.

    I − Jᵀ makes of each term that less the next one: u has the same product with all of them, here 1.
    """
    return numpy.linalg.solve(on_it.mT, numpy.ones((*on_it.shape[:2], 1)))[:, :, 0].astype(numpy.float64, copy=False)


def fallen_along(u: Numbers) -> Numbers:
    """The smallest residuals after no step, one, two, …, over the first, from the unit vectors along which they lie."""
    return abs(u[:, :1]) / numpy.sqrt(numpy.add.accumulate(u * u, axis=1))


def _regular(upper: Numbers) -> Numbers:
    """Triangular matrices with ones for zeros on the diagonal, where a vector of zeros stands for a direction that is not new."""
    zero = upper.diagonal(axis1=1, axis2=2) == 0
    return upper + zero[:, :, None] * numpy.eye(upper.shape[1]) if zero.any() else upper


def _powers(problem: System, v: Tensor, count: int) -> list[Tensor]:
    """Jᵀv, (Jᵀ)²v, …: so many."""
    if count > 1 and problem.at_once == 1:
        pairs = problem.add_terms(torch.zeros_like(v), v, count, count)[2]
        return [image.reshape(v.shape) for _, image in pairs]
    powers: list[Tensor] = []
    for _ in range(count):
        v = problem.vjp(v)
        powers.append(v)
    return powers


def _wider(known: Numbers, new: Numbers) -> Numbers:
    """Columns, with new ones that are longer."""
    problems, size, count = new.shape
    wider = numpy.zeros((problems, size, known.shape[2] + count))
    wider[:, : known.shape[1], : known.shape[2]] = known
    wider[:, :, known.shape[2] :] = new
    return wider


def _turned(u: Numbers, columns: Numbers) -> Numbers:
    """The unit vectors normal to some columns, after more and longer columns: those before, turned to the new directions."""
    known, count = u.shape[1], columns.shape[2]
    # What was normal to the columns before is u and the new directions: the part of the new columns there decides.
    first, rest = u[:, None, :] @ columns[:, :known], columns[:, known:]
    turned = numpy.ones((len(u), 1 + count))
    if count == 1:  # where both are zero there is no new direction to turn to
        turned[:, :1], turned[:, 1:] = numpy.where((first == 0) & (rest == 0), 1.0, -rest)[:, 0], first[:, 0]
    else:
        turned[:, 1:] = -numpy.linalg.solve(rest.mT, first.mT)[:, :, 0]
    turned /= numpy.sqrt(numpy.add.reduce(turned * turned, axis=1, keepdims=True))
    return numpy.concatenate([turned[:, :1] * u, turned[:, 1:]], axis=1)
