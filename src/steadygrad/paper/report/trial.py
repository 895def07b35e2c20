"""What the sections of all experiments share: trials with a result, the two modes, and numbers over several trials."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from steadygrad.paper.records import Record
from steadygrad.paper.report.panels import Points
from steadygrad.paper.report.section import Finding, Findings
from steadygrad.paper.report.style import CHECKPOINTED, ordered
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
Rule = Callable[["Group"], Outcome]


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
    def graph(self) -> str:
        return self.setting.get("graph", "")

    @property
    def seeds(self) -> int:
        return seeds_of(self.trials)

    @property
    def counts(self) -> list[int]:
        """Every K that was tried."""
        return sorted({trial.config["steps"] for trial in self.trials if trial.method not in WHOLE})

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

    def gaps(self, one: str, other: str, measure: Measure) -> list[float]:
        """`measure` of one method minus the other's, over the seeds that both have."""
        return [measure(ours) - measure(theirs) for ours, theirs in self.pairs(one, other=other)]

    def gap(self, one: str, other: str, measure: Measure) -> Gap | None:
        return Gap.of(self.gaps(one, other, measure))

    def median(self, method: str, name: str) -> float | None:
        """The median over seeds of a number by its name."""
        return middle(self.of(method), lambda trial: trial.value(name))

    def curves(self, series: Callable[[Trial], Points | None], methods: Sequence[str] | None = None) -> dict[str, list[Points]]:
        """What a panel draws of each method."""
        names = self.methods() if methods is None else methods
        return {method: [points for trial in self.of(method) if (points := series(trial))] for method in names}

    def changes(self, other: Group) -> dict[str, tuple[Any, Any]]:
        """Of each setting that is another there: from what to what."""
        pairs = {name: (self.setting.get(name), other.setting.get(name)) for name in {**self.setting, **other.setting}}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(frozen=True)
class Found:
    """The main groups of an experiment, by graph if it has any, and mode."""

    all: tuple[Group, ...]

    def of(self, mode: str, graph: str = "") -> Group | None:
        return next((group for group in self.on(graph) if group.mode == mode), None)

    @property
    def published(self) -> Group | None:
        return self.of("as-published")

    @property
    def corrected(self) -> Group | None:
        return self.of("corrected")

    @property
    def longer(self) -> tuple[Group, ...]:
        return tuple(longer for group in self.all for longer in group.longer)

    def on(self, graph: str) -> list[Group]:
        return [group for group in self.all if group.graph == graph]

    @property
    def graphs(self) -> list[str]:
        return list(dict.fromkeys(group.graph for group in self.all))

    def lengths(self, graph: str = "") -> list[Group]:
        """As published, the longest first."""
        return [one for group in self.on(graph) if group.mode == "as-published" for one in (*group.longer, group)]

    def judged(self, rule: Rule, graph: str = "", seeds: Callable[[Group], int] = lambda group: group.seeds) -> Findings:
        """By the longest trials as published that have what the rule takes, and by the corrected ones if they have."""
        tried = self.lengths(graph), filter(None, [self.of("corrected", graph)])
        kept = (next((one for one in groups if rule(one) is not Outcome.MISSING), None) for groups in tried)
        ours, fixed = (one and Finding(rule(one), one, seeds(one), one.length) for one in kept)
        return ours, fixed


def sort(trials: Sequence[Trial], free: Sequence[str], longer: Sequence[str], make: Callable[[list[Trial]], Group]) -> Found:
    """Of each graph and mode the main setting is the one with most methods, then most trials; what is left is nearest to one of
    them. `free` may differ between trials of a group, `longer` besides between a group and a longer one."""
    groups = [make(of) for of in grouped(trials, lambda trial: setting(trial, free))]
    mains: list[Group] = []
    # From the corrected mode on: what differs from it in its read-out only, the mode, is not as published but near to corrected.
    for place in sorted({(group.graph, group.mode) for group in groups}, reverse=True):
        own = [g for g in groups if (g.graph, g.mode) == place and not any(list(main.changes(g)) == ["mode"] for main in mains)]
        mains += [max(own, key=lambda group: (*rank(group.trials), group.length.ran))] if own else []
    rest = sorted(
        (g for g in groups if all(g is not main for main in mains)), key=lambda g: (g.length.ran, rank(g.trials)), reverse=True
    )
    made: list[Group] = []
    for main in mains[::-1]:
        others = [g for g in rest if min(mains, key=lambda each: len(each.changes(g))) is main]
        same = [g for g in others if set(main.changes(g)) <= set(longer) and g.length.ran > main.length.ran]
        made.append(replace(main, others=tuple(others), longer=tuple(same)))
    return Found(tuple(made))


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
