"""What the sections of all experiments share: trials with a result, the two modes, and numbers over several trials."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from steadygrad.paper.records import Record
from steadygrad.paper.report.panels import Points
from steadygrad.paper.report.section import Finding, Findings
from steadygrad.paper.report.style import CHECKPOINTED, look, ordered
from steadygrad.paper.report.text import short
from steadygrad.paper.report.verdicts import Gap, Length, Outcome

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
        return next((value for value in reversed(self.result.get("validation", {}).get(name, ())) if value is not None), None)

    def value(self, name: str) -> Any:
        """A number by its name: of the result, of what was measured beside it, or the last of the validations."""
        for known in (self.result, self.measured):
            if name in known:
                return known[name]
        return self.latest(name)


WHOLE = ("bptt", *CHECKPOINTED, "forward", "auto")
"""The methods that have no K."""
Measure = Callable[[Trial], float]


@dataclass(frozen=True)
class Group:
    """Trials that differ in method, K and seed only."""

    mode: str
    setting: dict[str, Any]
    trials: tuple[Trial, ...]
    K: int | None = None
    """the K that is meant where none is named"""

    @property
    def title(self) -> str:
        return TITLES[self.mode]

    @property
    def length(self) -> Length | None:
        """How long was trained, beside the paper."""
        return None

    @property
    def seeds(self) -> int:
        return seeds_of(self.trials)

    def of(self, method: str, K: int | None = None) -> list[Trial]:
        """The trials of a method and K, by seed."""
        steps = K or self.K
        found = (
            t for t in self.trials if t.method == method and (steps is None or method in WHOLE or t.config["steps"] == steps)
        )
        return sorted(found, key=lambda trial: trial.seed)

    def methods(self, K: int | None = None) -> list[str]:
        """The methods that have a trial with this K, in the order of all our figures."""
        return [method for method in ordered([trial.method for trial in self.trials]) if self.of(method, K)]

    def pairs(self, method: str, K: int | None = None, other: str = "bptt") -> list[tuple[Trial, Trial]]:
        """Trials of a method, each with the other's from the same seed."""
        theirs = {trial.seed: trial for trial in self.of(other)}
        return [(trial, theirs[trial.seed]) for trial in self.of(method, K) if trial.seed in theirs]

    def gaps(self, one: str, other: str, measure: Measure) -> list[float]:
        """`measure` of one method minus the other's, over the seeds that both have."""
        return [measure(ours) - measure(theirs) for ours, theirs in self.pairs(one, other=other)]

    def gap(self, one: str, other: str, measure: Measure) -> Gap | None:
        return Gap.of(self.gaps(one, other, measure))

    def median(self, method: str, name: str, K: int | None = None) -> float | None:
        """The median over seeds of a number by its name."""
        return middle(self.of(method, K), lambda trial: trial.value(name))

    def rows(self, methods: Iterable[str], *names: str) -> list[tuple[str, ...]]:
        """A row a method: its label and the medians of these numbers."""
        return [(look(method).label, *(short(self.median(method, name)) for name in names)) for method in methods]

    def curves(self, series: Callable[[Trial], Points | None], methods: Sequence[str] | None = None) -> dict[str, list[Points]]:
        """What a panel draws of each method."""
        names = self.methods() if methods is None else methods
        return {method: [points for trial in self.of(method) if (points := series(trial))] for method in names}


G = TypeVar("G", bound=Group)


def judged(
    published: Sequence[G],
    corrected: G | None,
    rule: Callable[[G], Outcome],
    seeds: Callable[[G], int] = lambda group: group.seeds,
) -> Findings:
    """What the first group as published says that has what the rule takes, and what the corrected one says if it has."""
    kept = first(published, rule), first([corrected] if corrected else [], rule)
    ours, fixed = (Finding(rule(one), seeds=seeds(one), length=one.length, of=one) if one else None for one in kept)
    return ours, fixed


def read(records: Sequence[Record], before: Mapping[str, Any]) -> list[Trial]:
    """Trials of the records that have a result; settings that came later are as they were `before`."""
    return [Trial({**before, **r.config}, r.result, r.measured) for r in records if r.result is not None]


def seeds_of(trials: Iterable[Trial]) -> int:
    return len({trial.seed for trial in trials})


def grouped(trials: Iterable[Trial], key: Callable[[Trial], Any]) -> list[list[Trial]]:
    """The trials that share a key, in the order in which it comes first."""
    found: dict[Any, list[Trial]] = {}
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


def middle(trials: Iterable[S], measure: Callable[[S], float | None]) -> float | None:
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
