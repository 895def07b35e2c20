"""How much the gradient changes on the way that the state has still to go: what the state's own distance does to it.

A state may be a thousandth from the steady one and its gradient ten per cent off: where J changes fast with h, or where a
parameter acts on a small difference of large numbers. The adjoint's certificate, which speaks of J at the state that was found,
knows nothing of that. Here F is linearised once more, where the state is going to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from steadygrad.gradient.look import Here, Look, Seen, in_worst_leaf, signs_like
from steadygrad.iteration.norms import Mask, Numbers, leaf_norms
from steadygrad.iteration.plain import some
from steadygrad.state.shards import somewhere
from steadygrad.update import agree
from steadygrad.update.jacobian import Jacobian, NoSecondDerivativeError

NEAR = 3e-3
"""States nearer than this share of what is trusted (1 %) are not looked at, to which well-converged calls with the default
tolerance belong (4e-6 to 2e-5 for tanh nets up to ρ = 0.8). Of the problems of tools/hunt, fewer than one in a thousand has a
gradient that is more than three hundred times further off than its state."""
DOUBT = 3.0
"""A distance that the adjoint proves to be larger than its estimate by this factor is worked out anew."""
GAIN = 30.0
"""How much further than its last step a number of the state may have to go, for a guess without looking."""
MANY = 0.1
"""The share of the numbers of a state with both signs that may be small by chance."""
FAR = 0.03
"""A state that may be further than this share of what is trusted is not looked at along its last step: Broyden's and Anderson's
last steps say nothing of the slow directions that they have hardly excited (states 4 % off at an estimate of 0.1 %)."""
LONG = 0.1
"""Nor one that is this share of what is trusted away by its own estimate (a state 0.5 % off, its gradient 1.7 %)."""
SURE = 0.3
"""A first look, along the last step, that finds less than this share of what is trusted is enough."""


class Steady(NamedTuple):
    """States that the search said to be steady."""

    sizes: Numbers
    """(problems, leaves): what they are relative to."""
    distances: Numbers
    """One a problem: estimates of how far they are from the steady ones, relative; NaN for those not said to be steady."""
    accelerated: bool = False
    """Whether the last steps may say nothing of slow directions, as Anderson's and Broyden's; those of F lead along them."""

    @property
    def said(self) -> Mask:
        """Which problems were said to be steady."""
        return ~numpy.isnan(self.distances)

    @property
    def all_said(self) -> bool:
        """Whether all problems were."""
        found = self.plain_distances
        return found == found if isinstance(found, float) else bool(self.said.all())

    @property
    def plain_distances(self) -> Any:
        """The distances; of a single problem a float."""
        return float(self.distances[0]) if len(self.distances) == 1 else self.distances

    def where(self, kept: Mask) -> Steady:
        """The same, with some problems taken out of those that were said to be steady."""
        return self._replace(distances=numpy.where(kept, self.distances, numpy.nan))

    def of(self, problems: list[int]) -> Steady:
        """The states of some problems."""
        return self._replace(sizes=self.sizes[problems], distances=self.distances[problems])

    def only(self, rows: Tensor) -> Tensor:
        """A matrix in which the rows of problems that were not said to be steady, whatever they hold, are zero."""
        if self.all_said:
            return rows
        return torch.where(torch.from_numpy(self.said).to(rows.device).unsqueeze(1), rows, 0.0)


class Shift(NamedTuple):
    """What is left between a state and the steady one."""

    gradient: float
    """The relative change of the gradient, by the worst of what F depends on; NaN where F is no longer what it was, and where
    nothing is seen of what it depends on, as inside torch.func."""
    distance: float
    """The relative distance of the worst problem, in its worst leaf."""


@dataclass
class RestOfTheWay:
    """The rest of the way from states that were said to be steady, as seen by adjoints z of cotangents b."""

    here: Here
    seen: Sequence[Seen]
    """One a cotangent."""
    steady: Steady
    trusted: float
    solve: Callable[[Jacobian, Tensor, bool], Tensor]
    """The solution of (I − Jᵀ) x = v or, with True, of (I − J) x = v, roughly."""

    @property
    def jacobian(self) -> Jacobian:
        """F where the state was found."""
        return self.here.jacobian

    def doubted(self, least: Any) -> bool:
        """Whether the change of the loss, zᵀ(F(h) − h) = bᵀ(h* − h), proves distances far above the estimates.

        It is given relative to what it can be: a float for a single problem, else one a problem.
        """
        return some((least > NEAR * self.trusted) & (least > DOUBT * self.steady.plain_distances))

    def matters(self) -> bool:
        """Whether the distance is such that the gradient may change by more than is trusted."""
        return some(self.steady.plain_distances > NEAR * self.trusted) or self._small_numbers_move()

    def rounding_leads_far(self) -> bool:
        """Whether half of a last digit of F may be a long way, as far as the adjoints tell the gains of (I − J)⁻¹, ‖z‖ / ‖b‖.

        No residual shows that: a state may be one per mille off where F(h) − h is zero.
        """
        size, half = (self.jacobian.h.shape[1],), torch.finfo(self.jacobian.precision).eps / 2
        least = max(NEAR * self.trusted / half, GAIN)  # in half precision any way is long
        with numpy.errstate(all="ignore"):
            gains = [numpy.divide(*leaf_norms([seen.z, seen.b], size))[:, 0][self.steady.said] for seen in self.seen]
        return somewhere(any(bool((gain > least).any()) for gain in gains))

    def _small_numbers_move(self) -> bool:
        """Whether numbers of a state that are not small by chance may still change by more than is trusted of themselves.

        A leaf is measured by its norm: the small shares of a population, or of a saturated softmax, may be anything. Where its
        numbers have both signs, some are small by chance, and only many count; where they have one, each does.
        """
        h = self.jacobian.h
        # Of the quotient, in its own place: every vector takes the memory of a state. What does not move has an infinite one.
        moving = (h / self.steady.only(self.here.gap)).abs_() < GAIN / self.trusted
        counts = list(map(_counts, self._leaves(moving)))
        if not somewhere(any(map(any, counts))):
            return False
        many = max(map(sum, zip(*counts, strict=True))) > MANY * h.shape[1]
        return somewhere(many or any(map(_one_sided, counts, self._leaves(h))))

    def _leaves(self, rows: Tensor) -> Sequence[Tensor]:
        sizes = self.jacobian.layout.sizes
        return [rows] if len(sizes) == 1 else rows.split(sizes, dim=1)

    def shift(self, doubted: bool) -> Shift:
        """How much the gradient changes on the way: along the last step first, then, unless that is little, where it leads to.

        The first costs an evaluation of F and two products a cotangent, the second a solve with J, and with Jᵀ, besides.
        """
        if not doubted and not (self.steady.accelerated and self._may_be_far()):
            first = self._looked(self._along_the_step())
            shift = max(first.of_products(self._longer()), first.of_gradients(SURE * self.trusted))
            if not first.sees:
                return Shift(numpy.nan, self._farthest(self.steady.distances))
            if not somewhere(shift > SURE * self.trusted):
                return Shift(shift, self._farthest(self.steady.distances))
        ahead = self._by_newton(self.jacobian, self._rounded_residual())
        look = self._looked(self._along_the_step() if ahead is None else ahead)
        distance = self.steady.distances if ahead is None else self._relative(ahead) * look.stretch()
        shift = look.settled(self.solve, SURE * self.trusted)
        if ahead is not None and somewhere(SURE * self.trusted < shift <= self.trusted):  # too near to call by one step
            more = self._by_newton(look.there, look.there.gap())
            shift = shift if more is None else max(shift, self._looked(ahead + more).settled(self.solve, SURE * self.trusted))
        if not look.sees or (shift > self.trusted and not self._still_the_same()):
            shift = numpy.nan
        return Shift(shift, self._farthest(distance))

    def _looked(self, ahead: Tensor) -> Look:
        steady = self.steady
        return Look(self.here, self.here.ahead(ahead), [Seen(steady.only(z), steady.only(b)) for z, b in self.seen], steady.sizes)

    def _may_be_far(self) -> bool:
        """Whether slow directions may hide in the residual r: ‖z‖·‖r‖, as large as zᵀr = bᵀ(h* − h) can be.

        z has the gains of all directions that the loss sees; the last steps of a search only of those that it has taken. So it is
        where the search itself knows of a long way: the last step is then a small part of it.
        """
        if bool((self.steady.distances > LONG * self.trusted).any()):
            return True
        moved, rounding = self.here.gap, torch.finfo(self.jacobian.precision).eps / 2
        for seen in self.seen:
            z, r, b = leaf_norms([seen.z, moved, seen.b], self.jacobian.layout.sizes)
            r = r + rounding * self.steady.sizes
            with numpy.errstate(all="ignore"):
                far = (z * r).sum(axis=1) / (b * self.steady.sizes).sum(axis=1)
            if bool((far[self.steady.said] > FAR * self.trusted).any()):
                return True
        return False

    def _by_newton(self, jacobian: Jacobian, residual: Tensor) -> Tensor | None:
        """h* − h to first order, (I − J)⁻¹ (F(h) − h); None where F knows no products with J."""
        with suppress(NoSecondDerivativeError):
            return self.solve(jacobian, self.steady.only(residual), True)
        return None

    def _rounded_residual(self) -> Tensor:
        """F(h) − h, changed by half a last digit of h, since F is not known better: with a large gain that is a long way."""
        h, digit = self.jacobian.h, torch.finfo(self.jacobian.precision).eps
        return self.here.gap + signs_like(h, numpy.random.default_rng(0)) * h * (digit / 2)

    def _along_the_step(self) -> Tensor:
        """h* − h, were it in the direction of F(h) − h and as long as was estimated."""
        moved = self.steady.only(self.here.gap)
        return moved * torch.from_numpy(self._longer()).to(moved).unsqueeze(1)

    def _longer(self) -> Numbers:
        """How many times longer than its last step the way of each problem is: a gain of (I − J)⁻¹ in that direction."""
        with numpy.errstate(all="ignore"):
            longer = self.steady.distances / self._relative(self.steady.only(self.here.gap))
        longer[~numpy.isfinite(longer)] = 0.0  # a state that does not move
        return longer

    def _relative(self, ahead: Tensor) -> Numbers:
        """How long that way is for each problem, relative, in its worst leaf."""
        return in_worst_leaf(leaf_norms([ahead], self.jacobian.layout.sizes)[0], self.steady.sizes)

    def _farthest(self, distances: Numbers) -> float:
        return float(distances[self.steady.said].max())

    def _still_the_same(self) -> bool:
        """Whether F gives what it gave in the forward pass: it may close over something that has changed since."""
        here, layout = self.jacobian, self.jacobian.layout
        before = layout.flatten([output.detach() for output in here.outputs])
        return agree(here.update(here.h), before, here.precision)


def _counts(marked: Tensor) -> list[int]:
    """How many numbers of each row are marked."""
    return [int(torch.count_nonzero(marked))] if len(marked) == 1 else marked.sum(dim=1).tolist()


def _one_sided(counts: list[int], leaf: Tensor) -> bool:
    """Whether some problem of which numbers are counted in a leaf, (problems, size), has no two of different signs there."""
    if not any(counts):
        return False
    if len(leaf) == 1:  # as a whole, which takes a fifth of the time at 2,048 numbers and a fifteenth at 32,768
        lowest, highest = leaf.aminmax()
        return float(lowest) * float(highest) >= 0
    lowest, highest = leaf.aminmax(dim=1)
    return any(count and low * high >= 0 for count, low, high in zip(counts, lowest.tolist(), highest.tolist(), strict=True))
