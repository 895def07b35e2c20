"""How far an iterate of a nonlinear search is from the solution, from its last steps: nothing is evaluated here."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from steadygrad.iteration.error import FLOOR
from steadygrad.iteration.gain import extrapolated, known
from steadygrad.iteration.goal import Goal
from steadygrad.iteration.norms import norms_in
from steadygrad.iteration.plain import larger, over, square_root, where
from steadygrad.iteration.solver import Iteration

LEAST = 1e-3
"""The least gain: an iterate that moves by much less than its residual says is not so near for that."""
SEEN = 8.0
"""A change of the residual of less than so many roundings of the iterate is not seen: the gain along the step is then unknown."""
STAYS = 0.1
"""A residual that changes by less than this share of itself in a step is no noise."""


def distances(solver: Iteration, recent: list[Any], residual: Any, size: Any, rate: Any, goal: Goal) -> Any:
    """‖error‖ / ‖iterate‖ in every leaf: about step / (1 − rate). A float where the residual is one, else (rows, leaves).

    The geometric mean of two guesses: the gain along the line between the last two points, which is low where slow
    directions hide behind others, and 1 / (1 − rate), which is high where the error turns from step to step. Where the change
    between two residuals is rounded away, the rate alone tells; where the residual does not fall either, nothing does, and
    the distance is infinite, as it is where only one residual is known. `residual` and `size` are the norms of the last, `rate`
    by how much the residual has fallen in a step of late. A residual at the rounding floor is noise that says nothing of the
    distance and raises no alarm, unless it stays as it is: then the iterate drifts.
    """
    rounding = goal.rounding * size
    before, after = (solver.residual(recent[-2]), solver.residual(recent[-1])) if len(recent) > 1 else (None, None)
    if before is None or after is None:
        # One more step tells a start at the solution from a creeping one.
        return where(residual == 0, 0.0, math.inf)
    with torch.no_grad():
        step = solver.point(recent[-1]) - solver.point(recent[-2])
        moved, changed = norms_in(residual, [step, after - before], goal.sizes)
        longer = _long_gain(solver, recent[-1], after, residual)
        wide = None if len(recent) <= 2 else _wide_gain(solver, recent, residual)
    by_rate = over(1.0, 1 - rate)  # infinite where the residual does not fall
    if wide is not None:
        gain = both = larger(larger(wide, longer), LEAST)
    else:
        gain = larger(over(moved, larger(changed, rounding)), LEAST)
        both = square_root(gain * where(rate < 1, by_rate, gain))
    gain = larger(gain, where(changed > SEEN * rounding, both, by_rate))
    # A Newton step that is left may stay the same below the rounding of an iterate that does not move: that is no drift.
    noise = (residual <= FLOOR * rounding) & ((changed > STAYS * residual) | (moved == 0)) | (residual == 0)
    far = over(residual, size) * where(noise, larger(longer, 1.0), gain)
    return where(far != far, 0.0, far)  # zero times infinite


def _wide_gain(solver: Iteration, recent: list[Any], like: Any) -> Any:
    """The gain of the residual over all that the last steps of an accelerated solver span; of slow directions, the most."""
    found = extrapolated(known(solver, recent)).values()[0]
    return float(found[0]) if isinstance(like, float) else found[:, None]


def _long_gain(solver: Iteration, state: Any, residual: Tensor, like: Any) -> Any:
    """The largest gain along the ways from some earlier points to the last; 0 where a solver keeps none.

    An accelerated solver takes the slow directions out early or bit by bit, and its last steps know little of them.
    """
    most: Any = 0.0
    for point, there in solver.anchors(state):
        moved, changed = norms_in(like, [solver.point(state) - point, residual - there], (residual.shape[1],))
        most = larger(most, over(moved, changed))
    return most
