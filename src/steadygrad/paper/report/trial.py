"""What the sections of all experiments share: trials with a result, the two modes, and numbers over several trials."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from steadygrad.paper.report.panels import Points
from steadygrad.paper.report.style import CHECKPOINTED, ordered
from steadygrad.paper.report.verdicts import Gap, Length

MODES = ("as-published", "corrected")
TITLES = {"as-published": "As published", "corrected": "Corrected"}
RENAMED = {"rbp": "rbp-uniform"}
"""What records call RBP from a random start, to tell it from the library's `gradient="rbp"`, which starts at zero."""


WHOLE = ("bptt", *CHECKPOINTED, "forward", "auto")
"""The methods that have no K."""


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

    @property
    def K(self) -> int:  # noqa: N802
        """Steps or terms of a truncated method; 0 of those that have none."""
        return 0 if self.method in WHOLE else self.config.get("steps") or 0

    @property
    def T(self) -> int:  # noqa: N802
        """Steps of the inner training, in the hyperparameter experiment."""
        return self.config["training_steps"]

    def seen(self, name: str) -> list[Any]:
        """What was measured at each validation; None where it could not be."""
        return self.result["validation"][name]

    def latest(self, name: str) -> Any:
        """The last that was measured at a validation."""
        return next((value for value in reversed(self.result.get("validation", {}).get(name, ())) if value is not None), None)

    def value(self, what: str | Measure) -> Any:
        """A measure, or by its name a number of the result, of what was measured beside it, or the last of the validations."""
        if callable(what):
            return what(self)
        return self.result[what] if what in self.result else self.measured.get(what, self.latest(what))


Measure = Callable[[Trial], Any]
"""A number of a trial, None where there is none."""


@dataclass(frozen=True)
class Group:
    """Trials that differ in method, K and seed only."""

    setting: dict[str, Any]
    trials: tuple[Trial, ...]
    title: str
    length: Length
    """how long was trained, beside the paper"""
    K: int | None = None
    """the K that is meant where none is named"""
    others: tuple[Group, ...] = ()
    """trials with settings that are nearest to these, the longest first"""
    longer: tuple[Group, ...] = ()
    """those of them that were trained longer and are else of the same problem"""

    @property
    def mode(self) -> str:
        return self.setting["mode"]

    @property
    def heading(self) -> str:
        """The mode, and how long was trained where that is the paper's."""
        return TITLES[self.mode] + (f", {self.length}" if self.mode == "as-published" and self.length.full else "")

    @property
    def graph(self) -> str:
        return self.setting.get("graph", "")

    @property
    def seeds(self) -> int:
        return seeds_of(self.trials)

    def common_seeds(self, methods: Iterable[str], counts: Sequence[int | None] = (None,)) -> int:
        """How many seeds all of these methods have at all of these K, but for those without any trial here."""
        seeds = [{trial.seed for trial in of} for method in methods for K in counts if (of := self.of(method, K))]
        return len(set.intersection(*seeds)) if seeds else 0

    @property
    def counts(self) -> list[int]:
        """Every K that was tried."""
        return sorted({trial.K for trial in self.trials} - {0})

    def of(self, method: str, K: int | None = None) -> list[Trial]:
        """The trials of a method and K, by seed."""
        steps = None if method in WHOLE else K or self.K
        found = (trial for trial in self.trials if trial.method == method and steps in (None, trial.config.get("steps")))
        return sorted(found, key=lambda trial: trial.seed)

    def methods(self) -> list[str]:
        """The methods that have a trial, in the order of all our figures."""
        return [method for method in ordered([trial.method for trial in self.trials]) if self.of(method)]

    def pairs(self, method: str, K: int | None = None, other: str = "bptt") -> list[tuple[Trial, Trial]]:
        """Trials of a method, each with the other's from the same seed."""
        theirs = {trial.seed: trial for trial in self.of(other)}
        return [(trial, theirs[trial.seed]) for trial in self.of(method, K) if trial.seed in theirs]

    def gap(self, one: str, other: str, measure: Measure) -> Gap:
        """`measure` of one method minus the other's, over the seeds that both have."""
        return Gap([measure(ours) - measure(theirs) for ours, theirs in self.pairs(one, other=other)])

    def over(self, method: str, what: str | Measure, K: int | None = None) -> list[Any]:
        """A number of each trial of a method, by seed."""
        return [trial.value(what) for trial in self.of(method, K)]

    def median(self, method: str, what: str | Measure, K: int | None = None) -> float | None:
        return median(self.over(method, what, K))

    def curves(self, series: Callable[[Trial], Points | None], methods: Sequence[str] | None = None) -> dict[str, list[Points]]:
        """What a panel draws of each method."""
        names = self.methods() if methods is None else methods
        return {method: [points for trial in self.of(method) if (points := series(trial))] for method in names}

    def changes(self, other: Group) -> dict[str, tuple[Any, Any]]:
        """Of each setting that is another there: from what to what."""
        pairs = {name: (self.setting.get(name), other.setting.get(name)) for name in {**self.setting, **other.setting}}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def methods_of(groups: Iterable[Group]) -> list[str]:
    """All methods that have a trial, in the order of all our figures."""
    return ordered([trial.method for group in groups for trial in group.trials])


def drawn_of(groups: Iterable[Group], methods: Callable[[Group], list[str]] = Group.methods) -> int:
    """How many trials their figures draw."""
    return sum(len(group.of(method)) for group in groups for method in methods(group))


def seeds_of(trials: Iterable[Trial]) -> int:
    return len({trial.seed for trial in trials})


def finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def ranked(values: Iterable[float | None]) -> list[float]:
    """What was measured, the largest last; what is not finite counts as infinite."""
    return sorted(value if math.isfinite(value) else math.inf for value in values if value is not None)


def median(values: Iterable[float | None]) -> float | None:
    """Of what was measured; None where nothing was."""
    found = ranked(values)
    return statistics.median(found) if found else None


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """ours / theirs; infinite where theirs is nothing or ours is not finite, None where either is unknown."""
    if ours is None or theirs is None:
        return None
    return ours / theirs if theirs > 0 and math.isfinite(ours) else math.inf
