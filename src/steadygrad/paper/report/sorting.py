"""Records become groups of trials: which setting is the main one of a mode, what was trained longer, what departs from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report.trial import Group, Trial
from steadygrad.paper.report.verdicts import Finding, Findings, Outcome

Rule = Callable[[Group], Outcome]


def read(records: Sequence[Record], before: Mapping[str, Any]) -> list[Trial]:
    """Trials of the records that have a result; settings that came later are as they were `before`."""
    return [Trial({**before, **r.config}, r.result, r.measured) for r in records if r.result is not None]


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

    def on(self, graph: str) -> list[Group]:
        return [group for group in self.all if group.graph == graph]

    def lengths(self, graph: str = "") -> list[Group]:
        """As published, the longest first."""
        return [one for group in self.on(graph) if group.mode == "as-published" for one in (*group.longer, group)]

    def shown(self, graph: str = "") -> list[Group]:
        """What tables and figures show: of trials at the paper's length those with most methods, then the modes."""
        return [*[one for one in self.lengths(graph)[:-1] if one.length.full][:1], *self.on(graph)]

    def beyond(self, judged: Group | None, graph: str = "") -> list[Group]:
        """As published, trained longer than what was judged, the longest first."""
        return [one for one in self.lengths(graph) if judged and one.length.ran > judged.length.ran]

    def judged(self, rule: Rule, graph: str = "", seeds: Callable[[Group], int] = lambda group: group.seeds) -> Findings:
        """By the longest trials as published that have what the rule takes, and by the corrected ones if they have."""
        tried = self.lengths(graph), filter(None, [self.of("corrected", graph)])
        kept = (next((one for one in groups if rule(one) is not Outcome.MISSING), None) for groups in tried)
        ours, fixed = (Finding(rule(one), one, seeds(one), one.length) if one else Finding() for one in kept)
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
