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
from steadygrad.linear.solver import LinearSolver
from steadygrad.linear.system import LinearSolution, System, precision_of
from steadygrad.state.rows import norm
from steadygrad.state.shards import columns_of_all
from steadygrad.update.jacobian import Linear

LARGE = 2**16
"""Numbers from which on a state is large: there Krylov vectors are where memory goes, and passes over them where time goes."""
FULL = 3
"""In states of few numbers a Krylov space is full after as many steps: the series then gets so many times that."""
GREW = 1e3
"""A residual above the first by this factor ends the series at once: the transients of most non-normal maps stay below."""
STEP = 2
"""Terms of the series that a step of GMRES is taken to cost in small states: one where F is dear, three to six where not."""
SIGHT = 12
"""Steps of GMRES after which its matrix tells the condition of I − J well enough to compare with LSQR."""
SOON = 100
"""Steps of GMRES that are not worth while a comparison."""
STALLED = 3
"""Cycles of GMRES that it may still need after a whole one before it has stalled."""
BEFORE = 4
"""Steps over which the growth of the condition that a Krylov space has seen is taken."""
RIDGE = 10.0
"""Roundings, in units of eps, below which a direction of the last terms is noise."""
DEPENDENT = 1e-13
"""What is noise at least: products of terms are summed in float64. Terms of a state of few numbers are dependent, and without it
what is left of them may be exactly zero."""
LEAPT = 0.25
"""A leap must leave less than this of the residual."""


class Patience(NamedTuple):
    """How long each phase may take, in states of some size."""

    window: int
    """The last terms of the series that are kept, with their products."""
    head: int
    """Terms after which the series may be left."""
    rising: int
    """Terms after which a series whose residual does not fall is given up."""
    terms: int
    """Terms that the series may still need."""
    restart: int
    """Krylov vectors that are kept."""


SMALL = Patience(window=16, head=16, rising=16, terms=50, restart=100)
"""A Krylov space takes over all that the series has computed, so that a later choice costs little; a step of it takes the time
of three to six terms, and on the test problems a third to a half of the terms are needed where these are more than fifty."""
BIG = Patience(window=4, head=4, rising=40, terms=300, restart=60)
"""A step of GMRES takes the time of ten terms and more. Non-normal maps rise for 10 to 30 terms."""


class Phase(NamedTuple):
    """The solver at work, with its state, and where the whole began."""

    solver: Any
    at: Any
    begun: Sum | None = None
    """The start and its residual; None for zero."""
    tried: int = 0
    """The step of the last look at which the series tried to leap, or to become a Krylov space."""
    seen: tuple[tuple[int, float], ...] = ()
    """Of the looks at the series, the step and the logarithm of how much too large the residual was."""
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
            return Phase(GMRES(restart=_patience(problem).restart), Krylov.of(begun.z, begun.v))
        return Phase(_Series(window=_patience(problem).window), begun, None if begun.v is problem.b else begun)

    def step(self, problem: System, state: Phase) -> Phase:
        return state._replace(at=state.solver.step(problem, state.at))

    def cheap(self, state: Phase) -> bool:
        return state.solver.cheap(state.at)

    def leap(self, problem: System, state: Phase) -> int:
        return state.solver.leap(problem, state.at)

    def several(self, problem: System, state: Phase, steps: int) -> list[Phase]:
        at, state = [state.at], state._replace(at=None)  # for the memory of its last terms
        return [state._replace(at=after) for after in state.solver.several(problem, at.pop(), steps)]

    @property
    def growth(self) -> float:
        """None ends it: a series that grows is left for GMRES at the next look, and one term may multiply by any factor."""
        return math.inf

    def value(self, state: Phase) -> Tensor:
        return state.solver.value(state.at)

    def residual(self, state: Phase) -> Tensor | None:
        return state.solver.residual(state.at)

    def hold(self, state: Phase) -> Phase:
        return state._replace(at=state.solver.hold(state.at))

    def gain(self, state: Phase) -> Numbers | Gains:
        own = state.solver.gain(state.at)
        if state.gain is None or not isinstance(state.solver, Neumann):
            return own
        # A leap leaves what its window did not see, the slow directions: between its gain and that of the last terms.
        return partial(_between, own, numbers(state.gain))

    def exact_at(self, state: Phase) -> bool:
        """The next term of a series is its residual; after leaps, sums of terms of either sign are."""
        return isinstance(state.solver, Neumann) and state.gain is None

    def turn(self, problem: System, state: Phase, forecast: Forecast) -> Phase:
        """Change over to the next solver where it will be faster."""
        patience = _patience(problem)
        if isinstance(state.solver, Neumann):
            state = state._replace(seen=(*state.seen, (forecast.step, forecast.decades)))
            if _series_is_slow(problem, state, patience, forecast):
                return self._as_space(problem, state, patience, forecast)
            if patience is BIG and forecast.left > SMALL.terms and forecast.step - state.tried >= patience.window:
                return _after_a_leap(state, forecast.step)
        elif isinstance(state.at, Krylov) and _lsqr_is_faster(state.at, patience.restart, forecast.step, forecast.decades):
            return Phase(LSQR(), LSQR().init(problem, state.at.value()))
        return state

    def _as_space(self, problem: System, state: Phase, patience: Patience, forecast: Forecast) -> Phase:
        """GMRES in the place of a series, LSQR where that is faster still, or the series where both are no better."""
        space = _space_of(problem, state, forecast)
        ahead = float((space.residual() / norm(state.at.v)).nan_to_num().amax())
        decades = forecast.decades + math.log(ahead)
        if _lsqr_is_faster(space, patience.restart, forecast.step, decades):
            return Phase(LSQR(), LSQR().init(problem, space.value()))
        if patience is SMALL and forecast.left <= min(STEP * patience.terms, STEP * _steps_left(space, decades)):
            return state._replace(tried=forecast.step)
        return Phase(GMRES(restart=patience.restart), space)

    def solve(self, jacobian: Linear, b: Tensor, z: Tensor | None = None) -> LinearSolution:
        """Solve (I − Jᵀ) z = b; what failed so badly that the truncated series is closer is replaced by that."""
        return instead_of_what_failed(super().solve(jacobian, b, z), jacobian, b)


@dataclass(frozen=True, repr=False)
class _Series(Neumann):
    """The Neumann series with more or fewer products at hand: a Krylov space can begin with them, and each takes memory."""

    window: int = Neumann.window

    def gain(self, state: Sum) -> Gains:
        return super().gain(state._replace(seen=state.seen[-Neumann.window :]))


def _patience(problem: System) -> Patience:
    rows, columns = problem.b.shape
    return SMALL if rows * columns_of_all(columns) <= LARGE else BIG


def _series_is_slow(problem: System, state: Phase, patience: Patience, forecast: Forecast) -> bool:
    """Whether the series needs more terms than it is worth, or seems to need infinitely many."""
    if forecast.grown > GREW:
        return True
    numbers = columns_of_all(problem.b.shape[1])
    head = min(patience.head if math.isfinite(forecast.left) else patience.rising, max(numbers // 4, BIG.head))
    if forecast.step < head or forecast.left <= min(patience.terms, FULL * numbers):
        return False
    if patience is BIG:
        return True
    # Once found to be no slower than GMRES, a series stays so while it needs as few terms.
    return min(forecast.left if state.tried else math.inf, _terms_left_by_bend(state.seen)) > STEP * patience.terms


def _terms_left_by_bend(seen: tuple[tuple[int, float], ...]) -> float:
    """Terms to the tolerance of a series that falls ever faster, as one that has first risen does; infinite of others.

    By the parabola through the logarithms of the residual now, at half of the steps, and at a quarter.
    """
    now = seen[-1]
    half, quarter = (next(look for look in seen if share * look[0] >= now[0]) for share in (2, 4))
    if not quarter[0] < half[0] < now[0]:
        return math.inf
    before, late = ((b[1] - a[1]) / (b[0] - a[0]) for a, b in ((quarter, half), (half, now)))
    bend = 2 * (late - before) / (now[0] - quarter[0])
    if not bend < 0:
        return math.inf
    slope = late + bend * (now[0] - half[0]) / 2
    return (slope + math.sqrt(slope * slope - 2 * bend * now[1])) / -bend


def _space_of(problem: System, state: Phase, forecast: Forecast) -> Krylov:
    """The Krylov space of the last terms of the series, whose products are known; of the first residual where that is smaller."""
    series: Sum = state.at
    begun = state.begun or Sum(torch.zeros_like(problem.b), problem.b)
    if state.gain is None or forecast.step - state.tried >= len(series.seen):  # no leap since: each is the product of the last
        terms = [v.reshape(series.v.shape) for v in (*(v for v, _ in series.seen), series.seen[-1][1])]
        space = Krylov.of_terms(series.z, terms, precision_of(problem.jacobian, series.v))
        if space is not None and bool((space.residual() <= norm(begun.v)).all()):
            return space
    return Krylov.of(*_smaller(series, begun))


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
    least = max(RIDGE * torch.finfo(sum.v.dtype).eps, DEPENDENT)
    noise = numpy.where(numpy.isinf(size), 1.0, least) * numpy.eye(len(steps))
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


def _smaller(one: Sum, other: Sum) -> tuple[Tensor, Tensor]:
    """Row by row, the sum with the smaller residual, and that residual."""
    first = norm(one.v) <= norm(other.v)
    return torch.where(first, one.z, other.z), torch.where(first, one.v, other.v)


def _lsqr_is_faster(krylov: Krylov, restart: int, step: int, decades: float) -> bool:
    """Compare the products that GMRES still needs with those of LSQR, at the condition that the space has seen.

    `decades` is the logarithm of how much too large the residual is.
    """
    if krylov.steps < SIGHT or krylov.basis.size <= restart:  # where there is room for all, the space is soon full
        return False
    left = _steps_left(krylov, decades)
    if left <= SOON:
        return False
    seen = krylov.hessenberg()
    seen = seen[numpy.isfinite(seen).all(axis=(1, 2))]
    if not len(seen):
        return False
    needed = _products_of_lsqr(seen, decades)
    if step > restart and left > STALLED * restart:
        return left > needed
    # The condition seen grows with the space, at this rate for each step, of two products, of LSQR too.
    growth = (needed - _products_of_lsqr(seen[:, : 1 - BEFORE, :-BEFORE], decades)) / BEFORE
    return growth < 2 and left > needed / (1 - growth / 2)


def _steps_left(krylov: Krylov, decades: float) -> float:
    """Steps that GMRES still needs, at the rate of the later half of its space; infinite where the residual does not fall."""
    steps, fallen = krylov.steps, krylov.fallen()
    rate = numpy.log(fallen[:, steps // 2] / fallen[:, -1]).min() / max(steps - steps // 2, 1)
    return decades / float(rate) if rate > 0 else math.inf


def _products_of_lsqr(hessenberg: Numbers, decades: float) -> float:
    """What LSQR takes at the condition of such matrices: ‖r‖ falls to 2 ((κ − 1)/(κ + 1))ᵏ in k steps of two products."""
    singular = numpy.linalg.svd(hessenberg, compute_uv=False)
    with numpy.errstate(divide="ignore"):
        return float((singular[:, 0] / singular[:, -1]).max()) * (decades + math.log(2))
