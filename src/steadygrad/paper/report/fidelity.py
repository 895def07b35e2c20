"""Single departures from a setting: what each point in which our records are not as the paper or its code does, alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from steadygrad.paper.report import generic
from steadygrad.paper.report.text import to
from steadygrad.paper.report.trial import Group, Measure, Trial

OTHER_PROBLEM = {"passes", "epochs", "side"}
"""Trials that differ in these are no departures from the released code, but longer or smaller."""
UNTOLD = "validate_every"
"""A setting that changes nothing but how often is looked."""


def words(base: Group, other: Group) -> str:
    """What was changed: "slope 3 → 0.5"."""
    changes = {key: map(generic.cell, pair) for key, pair in base.changes(other).items() if key != UNTOLD}
    return ", ".join(f"{key} {old} → {new}" for key, (old, new) in changes.items())


def departures(base: Group) -> list[Group]:
    """What departs from a setting, the smallest changes first."""
    kept = [other for other in base.others if other not in base.longer and not OTHER_PROBLEM & set(base.changes(other))]
    return sorted(kept, key=lambda other: (len(base.changes(other)), words(base, other)))


class Departure(NamedTuple):
    """A trial with something changed, and the setting in which it was changed."""

    changed: str
    base: Group
    trial: Trial

    def cells(self, measures: Sequence[tuple[str | Measure, int]]) -> list[str]:
        """The measures, to so many digits: of the trial, of the same seed without the change, and their range over all seeds."""
        others = self.base.of(self.trial.method, self.trial.config["steps"])
        beside = [self.trial], [one for one in others if one.seed == self.trial.seed], others
        return [ranged(trials, measure, digits) for trials in beside for measure, digits in measures]


def departed(base: Group | None) -> list[Departure]:
    """Every trial that departs from a setting."""
    if base is None:
        return []
    known = set(map(id, base.trials))  # other classifiers are in every setting of their graph
    pairs = [(other, trial) for other in departures(base) for trial in other.trials if id(trial) not in known]
    return [Departure(words(base, other), base, trial) for other, trial in pairs]


def ranged(trials: Sequence[Trial], measure: str | Measure, digits: int) -> str:
    """From the lowest to the highest."""
    found = sorted(value for trial in trials if (value := trial.value(measure)) is not None)
    return to(f"{found[0]:.{digits}f}", f"{found[-1]:.{digits}f}") if found else "–"
