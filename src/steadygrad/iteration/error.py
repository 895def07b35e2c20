"""How far an iterate is from the solution of a linear equation: the residual times a gain, worked out when somebody asks."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
from torch import Tensor

from steadygrad.iteration.gain import Gains
from steadygrad.iteration.norms import Numbers, Rows

FLOOR = 4.0
"""A residual of so many roundings of the iterate is as small as it gets."""


@dataclass
class Errors:
    """Estimates of ‖error‖ / ‖solution‖, one a problem, worked out when somebody asks: the small algebra takes as long as several
    products of a small state, and a certificate that nobody reads should not."""

    work: Callable[[], list[float]]
    holds: bool = False
    """Whether vectors are held for it."""
    _known: list[float] | None = field(default=None, compare=False)

    @classmethod
    def known(cls, numbers: list[float]) -> Errors:
        """Estimates that are there already."""
        return cls(list, False, numbers)

    @classmethod
    def later(cls, number: Callable[[], float], states: list[Any]) -> Errors:
        """The estimate for a single problem, worked out from states that are held until somebody asks.

        NaN where they have been changed since: F may keep what it returned, and write into it.
        """
        held = [v for state in states for v in state if isinstance(v, Tensor) and not v.is_inference()]
        versions = [v._version for v in held]
        errors = cls(lambda: [number() if versions == [v._version for v in held] else math.nan], True)
        errors.put_off()
        return errors

    def put_off(self) -> None:
        """Leave it until somebody asks, or, where it holds vectors, until so many others have been left that do."""
        if not self.holds:
            return
        _put_off.append(weakref.ref(self))
        while len(_put_off) > PUT_OFF:
            earlier = _put_off.popleft()()
            if earlier is not None:
                earlier.values()

    def at_least(self, limits: list[float]) -> None:
        """Raise the estimates to what is known besides."""
        self._known = [max(value, limit) for value, limit in zip(self.values(), limits, strict=True)]

    def values(self) -> list[float]:
        """The estimates."""
        work = self.work  # first: another thread may be asking too
        if self._known is None:
            self._known = work()
            self.work = list  # for the memory of what it was worked out from
        return self._known

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files hold the estimates, not what they are worked out from."""
        self.values()
        return self.__dict__


def errors_by(gains: Gains, rows: Rows, others: Numbers, residual: list[float], length: list[float], eps: float) -> Errors:
    """‖z − z*‖ / ‖z*‖ from the gains of the rows that were present to the end, and those of the others, which were left out."""

    def work() -> list[float]:
        gain, whole = others.copy(), numpy.full(len(others), numpy.nan)
        gain[rows], found = gains.values()
        if found is not None:
            whole[rows] = found
        each = zip(gain.tolist(), residual, length, whole.tolist(), strict=True)
        return [_error(g, r, n, w, eps) for g, r, n, w in each]

    return Errors(work, holds=gains.holds_vectors)


PUT_OFF = 24
"""Estimates that may wait to be asked for, three a solve: more than a network has layers that are solved in one backward pass,
mostly."""
_put_off: deque[weakref.ref[Errors]] = deque()


def _error(gain: float, residual: float, length: float, whole: float, eps: float) -> float:
    """‖e‖ / ‖z + e‖ for an error of ‖e‖ = gain·‖r‖, taken to be orthogonal to z where `whole`, ‖z + e‖, is not known.

    A residual at the rounding of z has changes that say nothing; a few of it is then a good guess.
    """
    if residual <= 2 * eps * length:
        return FLOOR * max(residual / length, eps) if residual else 0.0
    gain = gain if math.isfinite(gain) else 1.0  # a row that was solved long ago: 0 · ∞
    e = gain * residual if residual else 0.0
    whole = math.hypot(e, length) if math.isnan(whole) else whole
    return math.inf if math.isnan(whole) else e / whole if whole else 0.0
