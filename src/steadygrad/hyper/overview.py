"""What comes of several tunings, and how they show themselves meanwhile."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steadygrad.hyper.bar import INTERVAL
from steadygrad.hyper.history import Tuning


@dataclass(frozen=True)
class Tuned:
    """One start of `tune_many`, and what came of it.

    >>> Tuned(start=3, tuning=None, error="Traceback ...\\nValueError: too steep").reason
    'ValueError: too steep'
    """

    start: Any
    tuning: Tuning | None = field(repr=False)
    error: str | None = None
    """The traceback of what it raised, or how its worker was lost."""
    warnings: tuple[str, ...] = ()

    @property
    def loss(self) -> float:
        """The validation loss of the tuning; infinite for one that failed or is NaN, so that it comes last."""
        if self.tuning is None or math.isnan(self.tuning.loss):
            return math.inf
        return self.tuning.loss

    @property
    def reason(self) -> str:
        """The last line of the error."""
        return (self.error or "").strip().splitlines()[-1] if self.error else ""


@dataclass(frozen=True)
class Tunings:
    """What `tune_many` found.

    >>> Tunings(done=[], failed=[]).best
    Traceback (most recent call last):
    ...
    ValueError: no tuning ended well, so none is the best.
    """

    done: list[Tuned]
    """Those that ended, by their validation loss, the lowest first; in the order of the starts where two are equal."""
    failed: list[Tuned]
    """Those that raised an error, in the order of the starts."""

    @property
    def best(self) -> Tuned:
        """The one with the lowest validation loss."""
        if self.done:
            return self.done[0]
        reasons = "".join(f" From {tuned.start!r:.80}: {tuned.reason}." for tuned in self.failed)
        raise ValueError(f"no tuning ended well, so none is the best.{reasons}")


class Overview:
    """A line on the standard error stream when a tuning ends, and now and then how far the others are."""

    def __init__(self, starts: Mapping[str, Any], shown: bool) -> None:
        self._starts, self._shown = starts, shown
        self._running: dict[str, str] = {}
        self._ended = 0
        self._next = time.monotonic() + INTERVAL

    def step(self, name: str, message: tuple[int, int, str]) -> None:
        """How far a tuning is: meta steps done, of how many, and a word."""
        done, total, text = message
        self._running[name] = f"{self._starts[name]!r:.40} at {done}/{total}, {text}" if total else text
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + INTERVAL
            self._say("; ".join(self._running.values()))

    def ended(self, name: str, tuned: Tuned) -> None:
        self._running.pop(name, None)
        self._ended += 1
        came = f"loss {tuned.loss:.4g}" if tuned.tuning is not None else f"failed: {tuned.reason}"
        self._say(f"{tuned.start!r:.40}: {came}")

    def _say(self, text: str) -> None:
        if self._shown:
            print(f"tunings {self._ended}/{len(self._starts)}: {text}", file=sys.stderr, flush=True)
