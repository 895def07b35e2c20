"""When an iteration may stop, what is kept of it, and when to look at it next."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from steadygrad.iteration.norms import Numbers

SELDOM = 10
"""Residuals are taken every so many steps where no tolerance waits for them: a norm a step costs up to a fifth. Those of a linear
equation, which nobody reads, only to see whether what is left has become negligible: ever more seldom."""
UNSEEN = 30
"""Steps of a count on a linear equation before the first look: only terms that fall by 15 a step would be denormal by then."""
DOUBLY = 2
"""A count is looked at no further ahead than so many times the steps taken, however far what is negligible seems to be."""
NEAR_THE_END = 3
"""A count is not looked at so few steps before its last, at which it is looked at anyway."""
SHARE = 3
"""No look is further ahead than the steps taken, divided by this: a wrong guess is cheap, and divergence does not run on."""
STRETCH = 1.3
"""A look may be so many times further ahead where the end is said to be: better than one more look just before it."""
FEW = 4
"""Steps that may always be taken ahead of a look where a rate is known."""
FEW_CHEAP = 12
"""Steps ahead for solvers whose steps are but a call of F or a product: a look takes as long as one or two of them. On 96
networks of ρ = 0.2 to 0.95, 8 takes as many steps and 15 % more looks, 16 takes 2 % more steps."""
FEW_OF_MANY = 16
"""Steps ahead for several problems or leaves that are few numbers together: a look takes as long as three steps, one at
which some end as long as eight. On 216 batches this saves a fifth of the looks and takes one step in a hundred more."""
FASTEST = 20.0
"""By how much a residual is taken to fall in a cheap step at best before a rate is known: no look is due until then. Faster ones
are few, and lose a step or two; others are spared a look, and the rate is known from more than the first two steps. On 108
networks of ρ = 0.2 to 0.95 that is one look in ten less, and one step in fifty."""
AT_FIRST = 3
"""Steps ahead of the second look, at most."""
BLIND = 10
"""Steps ahead of a look, at most, where the residual does not fall, so that nothing can be predicted."""


@dataclass
class Goal:
    """When an iteration may stop, and what is kept of it.

    With `rtol` a problem stops once ‖r‖ ≤ rtol·scale + atol in every leaf of the state; without, exactly `limit` steps are
    taken, or fewer if all residuals fall below `negligible`·scale.
    """

    limit: int
    rtol: float | None
    atol: float = 0.0
    sizes: tuple[int, ...] = ()
    """The columns of each leaf of the state."""
    scale: Numbers | None = None
    """(problems, leaves): what residuals are relative to; None for the size of the iterate itself."""
    scaled_by: Tensor | None = None
    """The vector whose norms these are, where it is one: nobody has to take them again."""
    growth: float = 1e8
    """A residual above its smallest by this factor has diverged. A nonlinear iteration that leaves an unstable point for a
    stable one grows a lot and then stops, and the transients of non-normal maps stay below 1e4."""
    best: bool = False
    """Keep the iterate of the smallest residual instead of the last."""
    negligible: float = 0.0
    trusted: float | None = None
    """The largest estimated distance from the solution with which an iterate passes for converged; None: not estimated."""
    rounding: float = 0.0
    """Relative residuals below this are rounding errors."""
    remembered: int = 2
    """States kept for the estimate of the error."""
    reach: Callable[[Any, Tensor], Tensor] | None = None
    """Gives, for a problem and its iterate, how F changes with the iterate, scaled to a change by its own size."""

    def first_look(self, known: bool) -> int:
        """When to look first, given whether the residual is known before the first step. A count has its tenth step for that."""
        if known:
            return 0
        return SELDOM if self.rtol is None and self.limit >= 2 * SELDOM else 1

    def soonest(self, step: int, excess: float) -> int:
        """When to look again after a first look at a residual that is too large by such a factor, if steps are cheap."""
        ahead = math.log(excess) / math.log(FASTEST) if 1 < excess < math.inf else 1.0
        return min(step + max(1, min(int(ahead), AT_FIRST)), self.limit)

    def due(self, step: int, left: float, few: int = FEW) -> int:
        """When to look again with so many steps left: then, but never much further ahead than what has been seen.

        `few` is how many steps may always be taken ahead where a rate is known.
        """
        if self.rtol is None:
            if self.scale is None:
                return min(step - step % SELDOM + SELDOM, self.limit)
            predicted = int(min(left, DOUBLY * step)) if math.isfinite(left) else 0
            due = step + max(step // SHARE, SELDOM if step else UNSEEN, predicted)
            return due if due + NEAR_THE_END < self.limit else self.limit
        if not math.isfinite(left):
            return min(step + max(min(BLIND, step // SHARE), 1), self.limit)
        most = max(step // SHARE, few)
        ahead = left if left <= STRETCH * most else most
        return min(step + max(math.ceil(ahead), 1), self.limit)
