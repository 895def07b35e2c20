"""Choose by itself: the Neumann series while it is the fastest, then CG where J is symmetric, GMRES, LSQR where that stalls."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadygrad.iteration import Forecast
from steadygrad.iteration.gain import Gains, inner_products
from steadygrad.iteration.norms import Numbers, numbers
from steadygrad.linear.gmres import GMRES
from steadygrad.linear.krylov import TOGETHER, Krylov
from steadygrad.linear.leaps import between, leapt
from steadygrad.linear.lsqr import LSQR
from steadygrad.linear.neumann import Neumann, Sum
from steadygrad.linear.outlook import SIGHT, lsqr_is_faster, steps_left, terms_left_by_bend
from steadygrad.linear.patience import BIG, LIGHT, SMALL, Patience
from steadygrad.linear.series import instead_of_what_failed
from steadygrad.linear.solver import LinearSolver
from steadygrad.linear.symmetric import CG
from steadygrad.linear.system import LinearSolution, System, precision_of
from steadygrad.linear.terms import SeriesTerms, is_symmetric
from steadygrad.state.rows import norm
from steadygrad.state.shards import columns_of_all, everywhere
from steadygrad.update.linear_map import Linear

LARGE = 2**15
"""Numbers from which on a state is large: Krylov vectors are then what memory goes to, and passes over them what time goes to."""
FULL = 3
"""In states of few numbers a Krylov space is full after as many steps: the series then gets so many times that."""
GREW = 1e3
"""A residual above the first by this factor ends the series at once: the transients of most non-normal maps stay below."""
HOPELESS = 8
"""A series that needs so many times the terms that it may need is left after half of those that others are given to show how they
fall: with ρ = 0.99 nothing that they show would keep it."""
FEWEST = 4
"""Steps that GMRES needs beyond the terms that the series has, at least: 5 to 60 on the families of the benchmarks. A series that
ends before as many would is kept for the price of a few inner products."""
SHORT = 5
"""The last terms that tell whether J may be symmetric; whether it is, all of them tell."""
AGAIN = 1.5
"""GMRES is compared with LSQR again after so many times the steps: the comparison takes the time of several of them."""


class Phase(NamedTuple):
    """The solver at work, with its state, and where the whole began."""

    solver: Any
    at: Any
    patience: Patience
    begun: Sum | None = None
    """The start and its residual; None for zero."""
    tried: int = 0
    """The step of the last look at which the series tried to leap, or another solver was compared with."""
    seen: tuple[tuple[int, float], ...] = ()
    """Of the looks at the series, the step and the logarithm of how much too large the residual was."""
    gain: Tensor | None = None
    """The largest ‖step‖ / ‖what it took off the residual‖ of a leap."""


@dataclass(frozen=True, repr=False)
class Auto(LinearSolver):
    """The Neumann series while it is the fastest, GMRES where it would need many terms, LSQR where GMRES stalls; CG in place of
    GMRES where the terms of the series show that J is symmetric.

    Needs only that I−J is invertible. The rule rests on sizes and rates, never on a clock: the same input gives the same
    bits. It takes F to be cheap, so that a term of the series costs less than the arithmetic of a Krylov step; `dear=True`
    says that products with J are what costs, and saves these: GMRES from the start, then LSQR.
    """

    dear: bool = False

    def init(self, problem: System, start: Tensor) -> Phase:
        begun, patience = Neumann().init(problem, start), _patience(problem)
        if self.dear:
            return Phase(GMRES(restart=patience.restart), Krylov.of(begun.z, begun.v), patience)
        return Phase(patience.series, begun, patience, None if begun.v is problem.b else begun)

    def step(self, problem: System, state: Phase) -> Phase:
        return Phase(state.solver, state.solver.step(problem, state.at), *state[2:])

    @property
    def growth(self) -> float:
        """None ends it: a series that grows is left for GMRES at the next look, and one term may multiply by any factor."""
        return math.inf

    def from_nearby(self, state: Phase) -> Auto:
        """What a Krylov method leaves are the slow directions, on which a series would only lose what was gained."""
        return self if isinstance(state.solver, Neumann) else replace(self, dear=True)

    def cheap(self, state: Phase) -> bool:
        """Steps of GMRES too where its powers are independent, unless products are what costs: many of them together take hardly
        longer than a few."""
        if isinstance(state.at, Krylov):
            return not self.dear and state.at.together > TOGETHER[0]
        return state.solver.cheap(state.at)

    def at_once(self, problem: System, state: Phase) -> int:
        return state.solver.at_once(problem, state.at)

    def several(self, problem: System, state: Phase, steps: int) -> list[Phase]:
        solver, others, at = state.solver, state[2:], [state.at]
        del state  # for the memory of its last terms
        return [Phase(solver, after, *others) for after in solver.several(problem, at.pop(), steps)]

    def value(self, state: Phase) -> Tensor:
        return state.solver.value(state.at)

    def residual(self, state: Phase) -> Tensor | None:
        return state.solver.residual(state.at)

    def keep_for_value(self, state: Phase) -> Phase:
        return state._replace(at=state.solver.keep_for_value(state.at))

    def gain(self, state: Phase) -> Numbers | Gains:
        own = state.solver.gain(state.at)
        if state.gain is None or not isinstance(state.solver, Neumann):
            return own
        # A leap leaves what its window did not see, the slow directions: between its gain and that of the last terms.
        return Gains(between, own, numbers(state.gain))

    def exact_at(self, state: Phase) -> bool:
        """The next term of a series is its residual; after leaps, sums of terms of either sign are."""
        return isinstance(state.solver, Neumann) and state.gain is None

    def turn(self, problem: System, state: Phase, forecast: Forecast) -> Phase:
        """Change over to the next solver where it will be faster."""
        patience = state.patience
        if isinstance(state.solver, Neumann):
            state = state._replace(seen=(*state.seen, (forecast.step, forecast.decades)))
            if _series_is_slow(problem, state, forecast):
                return _instead_of_series(problem, state, forecast)
            if patience is BIG and forecast.left > SMALL.terms and forecast.step - state.tried >= patience.series.window:
                return _after_a_leap(state, forecast.step)
        elif isinstance(state.solver, CG):
            if forecast.left == math.inf and forecast.step - state.tried >= patience.head:  # I − J was not what it seemed
                begun = _smaller(Sum(*state.at[:2]), state.begun or _nothing(problem))
                return Phase(GMRES(restart=patience.restart), Krylov.of(*begun), patience, tried=forecast.step)
        elif isinstance(state.at, Krylov) and state.at.steps >= SIGHT and forecast.step >= AGAIN * state.tried:
            if lsqr_is_faster(state.at, state.at.basis.size, patience.restart, forecast):
                return Phase(LSQR(), LSQR().init(problem, state.at.value()), patience)
            return state._replace(tried=forecast.step)
        return state

    def solve(self, jacobian: Linear, b: Tensor, z: Tensor | None = None) -> LinearSolution:
        """Solve (I − Jᵀ) z = b; what failed so badly that the truncated series is closer is replaced by that."""
        return instead_of_what_failed(super().solve(jacobian, b, z), jacobian, b)


def _patience(problem: System) -> Patience:
    rows, columns = problem.b.shape
    return BIG if rows * columns_of_all(columns) >= LARGE else SMALL


def _by_work(problem: System, patience: Patience, left: float) -> Patience:
    """The same with what steps cost by the graph of F, which is looked at only where that matters to a series with so many terms
    left."""
    light = patience is SMALL and left <= LIGHT.most and everywhere(getattr(problem.jacobian, "light", False))
    return LIGHT if light else patience


def _series_is_slow(problem: System, state: Phase, forecast: Forecast) -> bool:
    """Whether the series needs more terms than it is worth, or seems to need infinitely many."""
    patience = state.patience
    if forecast.grown > GREW:
        return True
    numbers = columns_of_all(problem.b.shape[1])
    head = patience.head if math.isfinite(forecast.left) else patience.rising
    if HOPELESS * patience.terms < forecast.left < math.inf:
        head //= 2
    head = min(head, max(numbers // 4, BIG.head))
    if forecast.step < head or forecast.left <= min(patience.terms, FULL * numbers):
        return False
    if patience is BIG:
        return True
    # Once found to be no slower than others, a series stays so until it turns out to need more terms.
    left = min(forecast.left if state.tried else math.inf, terms_left_by_bend(state.seen))
    return left > _by_work(problem, patience, left).most


def _instead_of_series(problem: System, state: Phase, forecast: Forecast) -> Phase:
    """CG where J is symmetric, GMRES, or LSQR where that is faster; or the series where none of them would be.

    All of it is told by the inner products of the last terms.
    """
    patience, series = _by_work(problem, state.patience, forecast.left), state.at
    precision = precision_of(problem.jacobian, series.v)
    run = _consecutive(series)
    soon = forecast.left <= patience.space + patience.step * FEWEST
    if soon and not is_symmetric(inner_products(run[-SHORT:], len(run[0])).cpu().numpy()):
        return state._replace(tried=forecast.step)
    gram: Numbers = inner_products(run, len(run[0])).cpu().numpy()
    terms, symmetric = SeriesTerms.of(run, gram, precision), is_symmetric(gram)
    if terms is not None and patience is not BIG and forecast.left <= patience.most:
        steps = _steps_over(terms, forecast.decades)
        if forecast.left <= (patience.conjugate * steps if symmetric else patience.space + patience.step * steps):
            return state._replace(tried=forecast.step)
    if symmetric:
        begun = Sum(*_smaller(series, state.begun or _nothing(problem)))
        return Phase(CG(), CG.at(series.z, series.v), patience, begun, tried=forecast.step)
    return _krylov(problem, state, forecast, terms)


def _krylov(problem: System, state: Phase, forecast: Forecast, terms: SeriesTerms | None) -> Phase:
    """GMRES over the last terms, whose products are known, over the first residual where that is smaller; LSQR where that is
    faster."""
    patience, series = state.patience, state.at
    begun = state.begun or _nothing(problem)
    space: Krylov | None = None
    if terms is not None:
        ahead = float(terms.fallen[:, -1].max(initial=0.0))
        there = forecast._replace(left=math.inf, decades=forecast.decades + math.log(ahead) if ahead else -math.inf)
        if lsqr_is_faster(terms, columns_of_all(problem.b.shape[1]), patience.restart, there):
            # Not at the smallest residual over the terms: LSQR is chosen where that is hardly smaller.
            return Phase(LSQR(), LSQR.at(problem, *_smaller(series, begun)), patience)
        space = terms.space(series.z, precision_of(problem.jacobian, series.v))
    if space is None or not bool((space.residual() <= norm(begun.v)).all()):
        space = Krylov.of(*_smaller(series, begun))
        if terms is None:  # dependent terms: so will be the next ones
            space = space._replace(together=1)
    return Phase(GMRES(restart=patience.restart), space, patience, tried=forecast.step)


def _steps_over(terms: SeriesTerms, decades: float) -> float:
    """Steps that GMRES needs beyond those that the terms are worth."""
    ahead = float(terms.fallen[:, -1].max(initial=0.0))
    return steps_left(terms.fallen, decades + math.log(ahead)) if ahead > 0 else 0.0


def _consecutive(series: Sum) -> list[Tensor]:
    """The last terms, of which each is the product of the one before: none before a leap, nor of a compiled series."""
    terms = [series.v]
    shape, behind = series.v.shape, series.v
    for vector, image in reversed(series.seen):
        if image is not behind and image.data_ptr() != behind.data_ptr():
            break
        terms.append(vector.reshape(shape))
        behind = vector
    return terms[::-1]


def _after_a_leap(state: Phase, step: int) -> Phase:
    at, gain = leapt(state.at)
    if at is state.at:
        return state._replace(tried=step)
    return state._replace(at=at, tried=step, gain=gain if state.gain is None else torch.maximum(gain, state.gain))


def _nothing(problem: System) -> Sum:
    """Zero, and its residual."""
    return Sum(torch.zeros_like(problem.b), problem.b)


def _smaller(one: Sum, other: Sum) -> tuple[Tensor, Tensor]:
    """Row by row, the sum with the smaller residual, and that residual."""
    first = norm(one.v) <= norm(other.v)
    return torch.where(first, one.z, other.z), torch.where(first, one.v, other.v)
