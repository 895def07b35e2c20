"""Numbers that say of a curve or a path what an eye sees in it: its end, its smoothness, whether it comes to rest."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from steadygrad.report.hyperopt.trials import finite
from steadygrad.report.panels import Array
from steadygrad.report.text import short

TENTH = 0.1


def end(curve: Sequence[float | None]) -> float | None:
    """The median of the last tenth, at least of the last point; None where nothing in it is finite."""
    count = max(1, round(TENTH * len(curve)))
    found = finite(curve[-count:])
    return statistics.median(found) if found else None


def bend(curve: Sequence[float | None]) -> float | None:
    """How rough a curve is on a logarithmic axis: the mean of |log L_{m+1} − 2 log L_m + log L_{m−1}|. A straight line has 0.

    None for fewer than three points.
    """
    logs = [math.log(value) for value in finite(curve) if value > 0]
    bends = [abs(c - 2 * b + a) for a, b, c in zip(logs, logs[1:], logs[2:], strict=False)]
    return statistics.fmean(bends) if bends else None


def rises(curve: Sequence[float | None]) -> float | None:
    """The share of steps at which the curve goes up."""
    values = finite(curve)
    ups = [b > a for a, b in pairwise(values)]
    return statistics.fmean(ups) if ups else None


def pace(steps: Sequence[int], states: Array) -> float | None:
    """Speed along the path in the last tenth of the steps, relative to that along all of it: 1 moves on as ever, 0 rests.

    None for a path without length.
    """
    path = np.linalg.norm(np.diff(states, axis=0), axis=1)
    gaps = np.diff(np.asarray(steps, dtype=float))
    if len(path) == 0 or path.sum() == 0 or gaps.sum() <= 0:
        return None
    late = np.asarray(steps[1:]) > steps[-1] - TENTH * (steps[-1] - steps[0])
    return float((path[late].sum() / gaps[late].sum()) / (path.sum() / gaps.sum()))


def straightness(states: Array) -> float | None:
    """Over the last half of the path: how far it gets, relative to how long it is. 1 goes straight on, 0 comes back."""
    half = states[len(states) // 2 :]
    length = float(np.linalg.norm(np.diff(half, axis=0), axis=1).sum())
    return float(np.linalg.norm(half[-1] - half[0])) / length if length else None


def times(ours: float | None, theirs: float | None) -> float | None:
    """ours / theirs; infinite where theirs is nothing, None where either is unknown."""
    if ours is None or theirs is None:
        return None
    return ours / theirs if theirs > 0 else math.inf


def span(values: Sequence[float]) -> str:
    """ "0.5 to 2", or "0.5" where all are alike."""
    low, high = short(min(values)), short(max(values))
    return low if low == high else f"{low} to {high}"
