"""Choose by itself: the Neumann series while it is fast, then GMRES on what it computed, then LSQR where that stalls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.fixedpoint.solver import norms
from steadygrad.jacobian import Linear
from steadygrad.linear.gmres import GMRES, Krylov
from steadygrad.linear.lsqr import LSQR
from steadygrad.linear.rows import norm, over
from steadygrad.linear.solver import LinearSolver, default_rtol
from steadygrad.watch import Iterate

HEAD = 3
"""Terms of the Neumann series after which its rate is known."""
REMAINDER = 3
"""Further terms that the series is given: a Krylov method would hardly need fewer."""
SAFETY = 2.0
"""The condition that a Krylov space has seen is too low: LSQR needs more products than it promises."""
RESTART = 60
"""Krylov vectors kept in memory."""


@dataclass(frozen=True, repr=False)
class Auto(LinearSolver):
    """The Neumann series while its terms fall fast, GMRES on the same Krylov space otherwise, LSQR where GMRES stalls.

    Needs only that I−J is invertible. The terms of the series span the Krylov space, so that changing over costs no
    product. LSQR takes over when the singular values that GMRES has seen promise fewer products than its own rate.
    """

    def iterates(self, jacobian: Linear, b: Tensor, z: Tensor) -> Iterator[Iterate]:
        goal = [(self.rtol or default_rtol(b.dtype)) * size for size in norms(b)]
        if b.shape[1] <= 2 * HEAD:  # such a space is full before the series has a rate
            yield from GMRES().iterates(jacobian, b, z)
        r = b - z + jacobian.vjp(z) if z.any() else b
        powers = [r]
        series = z
        yield Iterate(z, lambda: r, lambda: torch.ones_like(r[:, :1]))
        while True:
            series = series + powers[-1]
            powers.append(jacobian.vjp(powers[-1]))
            yield Iterate(series, lambda v=powers[-1]: v, lambda u=powers[-2], v=powers[-1]: over(norm(u), norm(u - v)))
            if len(powers) > HEAD and not _nearly_done(powers, goal):
                break
        krylov = Krylov.of_powers(powers)
        yield krylov.best(z)
        yield from self._krylov(jacobian, b, z, krylov, goal)

    def _krylov(self, jacobian: Linear, b: Tensor, z: Tensor, krylov: Krylov, goal: list[float]) -> Iterator[Iterate]:
        while True:
            seen: list[list[float]] = []
            for iterate in krylov.extend(jacobian, z, RESTART):
                yield iterate
                seen.append(norms(iterate.residual()))
                if (
                    len(seen) >= 16
                    and len(seen) % 8 == 0
                    and all(_lsqr_is_faster(krylov, i, seen, goal) for i in range(len(goal)))
                ):
                    break
            z, r = krylov.solution(z), krylov.residual()
            if krylov.steps < RESTART or _stalled(seen):
                break
            krylov = Krylov.of(r)
        yield from LSQR().iterates(jacobian, b, z)


def _nearly_done(powers: list[Tensor], goal: list[float]) -> bool:
    """Whether the series, at the rate of its last two terms, needs no more than REMAINDER further ones in every row."""
    terms = zip(norms(powers[-2]), norms(powers[-1]), goal, strict=True)
    return all(v <= g or (v < u and math.log(g / v) / math.log(v / u) <= REMAINDER) for u, v, g in terms)


def _stalled(seen: list[list[float]]) -> bool:
    """Whether a whole cycle has not even halved the residual of some row."""
    return any(end > 0.5 * start for start, end in zip(seen[0], seen[-1], strict=True))


def _lsqr_is_faster(krylov: Krylov, row: int, seen: list[list[float]], goal: list[float]) -> bool:
    """Compare the products that GMRES still needs at its recent rate with those of LSQR at the condition it has seen."""
    now, then = seen[-1][row], seen[-8][row]
    if now <= goal[row] or not krylov.hessenberg[row].isfinite().all():
        return True  # this row has no say
    rate = (now / then) ** (1 / 7) if then else 1.0
    ahead = math.log(goal[row] / now) / math.log(rate) if rate < 1 else math.inf
    ahead = min(ahead, krylov.basis.size - krylov.steps)  # GMRES ends when it has seen every direction
    singular: list[float] = torch.linalg.svdvals(krylov.hessenberg[row]).tolist()
    condition = singular[0] / singular[-1] if singular[-1] else math.inf
    return ahead > SAFETY * condition * math.log(2 * now / goal[row])
