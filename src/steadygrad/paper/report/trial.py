"""What the sections of all experiments share: trials with a result, the two modes, and numbers over several trials."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from steadygrad.paper.records import Record
from steadygrad.paper.report.verdicts import Outcome

MODES = ("as-published", "corrected")
TITLES = {"as-published": "As published", "corrected": "Corrected"}
RENAMED = {"rbp": "rbp-uniform"}
"""What records call RBP from a random start, to tell it from the library's `gradient="rbp"`, which starts at zero."""


def called(method: str) -> str:
    return RENAMED.get(method, method)


@dataclass(frozen=True)
class Trial:
    """A record that has a result."""

    config: dict[str, Any]
    result: dict[str, Any]
    measured: dict[str, Any]

    @property
    def method(self) -> str:
        return called(self.config["method"])

    @property
    def seed(self) -> int:
        return self.config["seed"]

    def seen(self, name: str) -> list[Any]:
        """What was measured at each validation; None where it could not be."""
        return self.result["validation"][name]

    def latest(self, name: str) -> Any:
        """The last that was measured at a validation."""
        return next((value for value in reversed(self.seen(name)) if value is not None), None)


T = TypeVar("T", bound=Trial)


def read(kind: type[T], records: Sequence[Record], before: Mapping[str, Any]) -> list[T]:
    """Trials of the records that have a result; settings that came later are as they were `before`."""
    return [kind({**before, **r.config}, r.result, r.measured) for r in records if r.result is not None]


def by_seed(trials: Iterable[T]) -> list[T]:
    return sorted(trials, key=lambda trial: trial.seed)


def seeds_of(trials: Iterable[Trial]) -> int:
    return len({trial.seed for trial in trials})


def grouped(trials: Iterable[T], key: Callable[[T], Any]) -> list[list[T]]:
    """The trials that share a key, in the order in which it comes first."""
    found: dict[Any, list[T]] = {}
    for trial in trials:
        found.setdefault(key(trial), []).append(trial)
    return list(found.values())


def setting(trial: Trial, free: Sequence[str]) -> str:
    """What a trial was told but for what may differ between trials of one setting, as a key."""
    return repr(sorted((name, value) for name, value in trial.config.items() if name not in free))


def rank(trials: Sequence[Trial]) -> tuple[int, int]:
    """Of several settings the main one has most methods, then most trials."""
    return len({trial.method for trial in trials}), len(trials)


S = TypeVar("S")


def first(tried: Sequence[S], rule: Callable[[S], Outcome]) -> S | None:
    """The first that has what a rule takes."""
    return next((one for one in tried if rule(one) is not Outcome.MISSING), None)


def finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def median(values: Iterable[float | None]) -> float | None:
    """Of what was measured and is finite; None where nothing is."""
    found = finite(values)
    return statistics.median(found) if found else None


def middle(trials: Sequence[T], measure: Callable[[T], float | None]) -> float | None:
    """The median over the trials in which there is something to measure; what is not finite counts as infinite."""
    found = [value if math.isfinite(value) else math.inf for trial in trials if (value := measure(trial)) is not None]
    return statistics.median(found) if found else None


def largest(values: Iterable[float | None]) -> float | None:
    """The largest of what was measured; infinite if anything was not finite."""
    found = [value for value in values if value is not None]
    return math.inf if any(not math.isfinite(value) for value in found) else max(found, default=None)


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """ours / theirs; infinite where theirs is nothing or ours is not finite, None where either is unknown."""
    if ours is None or theirs is None:
        return None
    return ours / theirs if theirs > 0 and math.isfinite(ours) else math.inf
