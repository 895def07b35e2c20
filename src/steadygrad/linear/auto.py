"""Choose by itself: the Neumann series while it is the fastest, then GMRES, then LSQR where that stalls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from steadygrad.iteration import Forecast
from steadygrad.iteration.error import Gains, distinct, inner_products
from steadygrad.iteration.norms import Numbers, numbers
from steadygrad.linear.gmres import GMRES, Krylov
from steadygrad.linear.lsqr import LSQR
from steadygrad.linear.neumann import Neumann, Sum
from steadygrad.linear.series import instead_of_what_failed
from steadygrad.linear.solver import LinearSolution, LinearSolver, System
from steadygrad.state.rows import length, norm
from steadygrad.state.shards import columns_of_all
from steadygrad.update.jacobian import Linear

SERIES = 300
"""Terms that the series may still need. A step of GMRES takes some three products' time on a cheap F, and on the test
problems it needs about a third of the terms and more only where that is several hundred."""
SMALL = 3
"""In small states a Krylov space is full after as many steps as there are numbers: the series then gets so many times that."""
HEAD = 4
"""Terms before its rate says something."""
GREW = 1e3
"""A residual above the first by this factor ends the series at once: the transients of most non-normal maps stay below."""
RISING = 40
"""Terms after which a series whose residual does not fall is given up: in the non-normal family it does so for 10 to 30."""
RESTART = 60
"""Krylov vectors kept in memory."""
SAFETY = 2.0
"""The condition that a Krylov space has seen is too low: LSQR needs more products than it promises."""
SIGHT = 16
"""Steps of GMRES after which its matrix tells the condition of I − J well enough to compare with LSQR."""
STALLED = 0.5
"""A cycle of GMRES that, at its half or later, would leave more than this of the residual at its rate, has stalled."""


LEAP = 30
"""Steps left from which on leaping ahead is tried."""
RIDGE = 10.0
"""Roundings, in units of eps, below which a direction of the last terms is noise."""
LEAPT = 0.25
"""A leap must leave less than this of the residual."""


class Phase(NamedTuple):
    """The solver at work, with its state, and where the whole began."""

    solver: str
    at: Any
    begun: Sum | None = None
    """The start and its residual; None for zero."""
    cycle: Tensor | None = None
    """The residual norm at which the present cycle of GMRES began."""
    tried: int = 0
    """The step of the last look at which the series tried to leap."""
    gain: Tensor | None = None
    """The largest ‖step‖ / ‖what it took off the residual‖ of a leap."""


@dataclass(frozen=True, repr=False)
class Auto(LinearSolver):
    """The Neumann series while it is the fastest, GMRES where it would need many terms, LSQR where GMRES stalls.

    Needs only that I−J is invertible. The rule rests on sizes and rates, never on a clock: the same input gives the same
    bits. It takes F to be cheap, so that a term of the series costs less than the arithmetic of a Krylov step; `dear=True`
    says that products with J are what costs, and saves these: GMRES from the start, then LSQR.
    """

    dear: bool = False

    def init(self, problem: System, start: Tensor) -> Phase:
        begun = Neumann().init(problem, start)
        if self.dear:
            return Phase("gmres", Krylov.of(begun.z, begun.v), cycle=norm(begun.v).double())
        return Phase("series", begun, None if begun.v is problem.b else begun)

    def step(self, problem: System, state: Phase) -> Phase:
        at = _SOLVERS[state.solver].step(problem, state.at)
        if state.solver == "gmres" and len(at.columns) == 1 and state.at.columns:
            return state._replace(at=at, cycle=at.beta)
        return state._replace(at=at)

    @property
    def growth(self) -> float:
        """None ends it: a series that grows is left for GMRES at the next look, and one term may multiply by any factor."""
        return math.inf

    def value(self, state: Phase) -> Tensor:
        return _SOLVERS[state.solver].value(state.at)

    def residual(self, state: Phase) -> Tensor | None:
        return _SOLVERS[state.solver].residual(state.at)

    def hold(self, state: Phase) -> Phase:
        return state._replace(at=_SOLVERS[state.solver].hold(state.at))

    def gain(self, state: Phase) -> Numbers | Gains:
        own = _SOLVERS[state.solver].gain(state.at)
        if state.solver != "series" or state.gain is None:
            return own
        # A leap leaves what its window did not see, the slow directions: between its gain and that of the last terms.
        return partial(_between, own, numbers(state.gain))

    def several(self, problem: System, state: Phase, steps: int) -> list[Phase]:
        series, state = [state.at], state._replace(at=None)  # for the memory of its last terms
        return [state._replace(at=at) for at in _SOLVERS["series"].several(problem, series.pop(), steps)]

    def leap(self, problem: System, state: Phase) -> int:
        return problem.leap if state.solver == "series" else 0

    def turn(self, problem: System, state: Phase, forecast: Forecast) -> Phase:
        """Change over to the next solver where it will be faster."""
        if state.solver == "series":
            terms = min(SERIES, SMALL * columns_of_all(problem.b.shape[1]))
            falls = math.isfinite(forecast.left)
            if forecast.grown > GREW or (forecast.step >= (HEAD if falls else RISING) and forecast.left > terms):
                begun = _smaller(state.at, state.begun or Sum(torch.zeros_like(problem.b), problem.b))
                return state._replace(solver="gmres", at=Krylov.of(begun.z, begun.v), cycle=norm(begun.v).double())
            if forecast.left > LEAP and forecast.step - state.tried >= HEAD:
                return _after_a_leap(state, forecast.step)
        elif state.solver == "gmres" and _lsqr_is_faster(state, forecast):
            z = _SOLVERS["gmres"].value(state.at)
            return state._replace(solver="lsqr", at=_SOLVERS["lsqr"].init(problem, z))
        return state

    def solve(self, jacobian: Linear, b: Tensor, z: Tensor | None = None) -> LinearSolution:
        """Solve (I − Jᵀ) z = b; what failed so badly that the truncated series is closer is replaced by that."""
        return instead_of_what_failed(super().solve(jacobian, b, z), jacobian, b)


class _Series(Neumann):
    """With fewer products at hand, for the memory; to leap from, six are no better (77 for 74 products at 32×64, ρ = 0.95)."""

    window = 4


_SOLVERS: dict[str, Any] = {"series": _Series(), "gmres": GMRES(restart=RESTART), "lsqr": LSQR()}


def _between(own: Gains, leaps: Numbers) -> tuple[Numbers, None]:
    """The geometric mean of the gains of the last terms and of the leaps, where that is larger."""
    gain = own()[0]
    return numpy.fmax(gain, numpy.sqrt(gain * leaps)), None


def _after_a_leap(state: Phase, step: int) -> Phase:
    at, gain = leapt(state.at)
    if at is state.at:
        return state._replace(tried=step)
    return state._replace(at=at, tried=step, gain=gain if state.gain is None else torch.maximum(gain, state.gain))


def leapt(sum: Sum) -> tuple[Sum, Tensor]:
    """The series moved ahead by the combination of its last terms that leaves the smallest residual, row by row.

    z + Σ cⱼ vⱼ has the residual v − Σ cⱼ (vⱼ − Jᵀvⱼ): no product is spent. This is reduced rank extrapolation (Sidi 2017), a
    few steps of GMRES for the price of a small Gram matrix. Rows that would gain too little stay. Also a column, the
    ‖step‖ / ‖what it took off the residual‖ of each row, 0 where none was taken.
    """
    vectors, steps, changes = distinct(list(sum.seen), sum.v.shape)
    gram = inner_products([*vectors, sum.v]).cpu().numpy()
    among, along, own = gram[:, :-1, :-1], changes @ gram[:, :-1, -1:], gram[:, -1, -1]
    by_change = changes @ among @ changes.T
    size = numpy.sqrt(by_change.diagonal(axis1=1, axis2=2))[:, :, None]
    size = numpy.where((size > 0) & numpy.isfinite(size), size, numpy.inf)
    noise = numpy.where(numpy.isinf(size), 1.0, RIDGE * torch.finfo(sum.v.dtype).eps) * numpy.eye(len(steps))
    system = by_change / size / size.mT + noise
    system[~numpy.isfinite(system).all(axis=(1, 2))] = numpy.eye(len(steps))
    try:
        c = (numpy.linalg.solve(system, along / size) / size).mT
    except numpy.linalg.LinAlgError:  # of terms that are parallel, rounding may cancel the ridge to the last digit
        c = (numpy.linalg.pinv(system, hermitian=True) @ (along / size) / size).mT
    taken_off = (c @ by_change @ c.mT)[:, 0, 0]
    ahead = own + taken_off - 2 * (c @ along)[:, 0, 0] < LEAPT**2 * own
    gain = numpy.sqrt(numpy.where(ahead, (c @ steps @ among @ steps.T @ c.mT)[:, 0, 0] / taken_off, 0.0))
    column = torch.from_numpy(gain[:, None]).to(sum.v)
    if not ahead.any():
        return sum, column
    c[~ahead] = 0.0
    forth, back = (torch.from_numpy(c @ matrix).to(sum.v).unbind(2) for matrix in (steps, -changes))
    z, v = (torch.addcmul(x, by[0], vectors[0]) for x, by in ((sum.z, forth), (sum.v, back)))
    for vector, by_z, by_v in zip(vectors[1:], forth[1:], back[1:], strict=True):
        z.addcmul_(by_z, vector)
        v.addcmul_(by_v, vector)
    return Sum(z, v, sum.seen), column


def _smaller(one: Sum, other: Sum) -> Sum:
    """Row by row, the sum with the smaller residual."""
    first = norm(one.v) <= norm(other.v)
    return Sum(torch.where(first, one.z, other.z), torch.where(first, one.v, other.v))


def _lsqr_is_faster(state: Phase, forecast: Forecast) -> bool:
    """Compare the products that GMRES still needs with those of LSQR, at the condition that the space has seen."""
    krylov: Krylov = state.at
    steps, size = len(krylov.columns), krylov.basis.size
    if steps < SIGHT or size <= RESTART:  # a space that holds everything is soon full
        return False
    seen = krylov.hessenberg()
    seen = seen[seen.isfinite().all(dim=(1, 2))]
    if not len(seen):
        return False
    if 2 * steps >= RESTART and state.cycle is not None:
        left = length(krylov.coefficients()[1])
        if bool((left > STALLED ** (steps / RESTART) * state.cycle).any()):
            return True
    singular = torch.linalg.svdvals(seen)
    condition = float((singular[:, 0] / singular[:, -1]).max())
    return forecast.left > SAFETY * condition * forecast.decades
