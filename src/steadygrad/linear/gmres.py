"""GMRES: the smallest residual over the Krylov space, restarted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from torch import Tensor

from steadygrad.iteration.norms import Numbers
from steadygrad.linear.krylov import Krylov, over_upper
from steadygrad.linear.solver import LinearSolver
from steadygrad.linear.system import System
from steadygrad.method import check_count

CENTRE = 1.6
"""Both guesses behind `gain_of` are low; this factor is the median of error / guess over the test problems."""


@dataclass(frozen=True, repr=False)
class GMRES(LinearSolver):
    """min ‖b − (I−Jᵀ)z‖ over the Krylov space of Jᵀ and b. Needs only that I−J is invertible. One product a step.

    No method with one product of Jᵀ a step needs fewer, until the restart: memory is up to `restart` + 1 states, and a
    restart may stall where the eigenvalues of I−J surround zero (then `LSQR`). Saad and Schultz 1986.
    """

    restart: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("restart", self.restart, least=1)

    def init(self, problem: System, start: Tensor) -> Krylov:
        return Krylov.of(start, problem.residual(start))

    def step(self, problem: System, state: Krylov) -> Krylov:
        return self.several(problem, state, 1)[0]

    def at_once(self, problem: System, state: Krylov) -> int:
        return 1

    def several(self, problem: System, state: Krylov, steps: int) -> list[Krylov]:
        full = min(self.restart, state.basis.size)
        while steps > 0:
            if state.steps >= full:
                smallest = state.smallest()
                del state  # for the memory of its basis
                state = Krylov.of(*smallest)
                del smallest
            more = min(steps, full - state.steps)
            state, steps = state.extended(problem, more), steps - more
            if full < self.restart:
                break  # a space that holds everything leaves rounding: first look
        return [state]

    def value(self, state: Krylov) -> Tensor:
        return state.value()

    def residual(self, state: Krylov) -> Tensor:
        return state.residual()

    def gain(self, state: Krylov) -> Numbers:
        return gain_of(state.hessenberg()) if state.steps else numpy.ones(state.z.shape[0])


def gain_of(hessenberg: Numbers) -> Numbers:
    """A guess at ‖(I−Jᵀ)⁻¹ r‖ / ‖r‖ for the smallest residual over a space, from what the space knows of I−Jᵀ.

    The geometric mean of two guesses: the gain of r itself, with I−Jᵀ taken to have its mean size on the one direction that
    the space has not seen, and the mean gain of all directions that it has.
    """
    steps = hessenberg.shape[2]
    size = numpy.sqrt(numpy.square(hessenberg).sum(axis=(1, 2)) / steps)
    usable = numpy.isfinite(size)
    H = numpy.where(usable[:, None, None], hessenberg, numpy.eye(steps + 1, steps))
    q, upper = numpy.linalg.qr(H, mode="complete")
    inverse = _inverse(upper[:, :-1])
    # With u, the unit vector orthogonal to the columns of H, along which r lies, and e the last one of the space:
    # u = H x + ‖I−Jᵀ‖ e y gives y = 1 / (‖I−Jᵀ‖ uᵀe) and R x = −Qᵀe / uᵀe.
    with numpy.errstate(all="ignore"):
        own = numpy.hypot(numpy.linalg.norm(inverse @ q[:, -1, :-1, None], axis=(1, 2)), 1 / size) / abs(q[:, -1, -1])
        mean = numpy.linalg.norm(inverse, axis=(1, 2)) / math.sqrt(steps)
        return numpy.where(usable, CENTRE * numpy.sqrt(own * mean), numpy.nan)


def _inverse(upper: Numbers) -> Numbers:
    """The inverses of upper triangular matrices; infinite where one is singular."""
    singular = (upper.diagonal(axis1=1, axis2=2) == 0).any(axis=1)[:, None, None]
    unit = numpy.eye(upper.shape[1])
    return numpy.where(singular, numpy.inf, over_upper(unit, numpy.where(singular, unit, upper)))
