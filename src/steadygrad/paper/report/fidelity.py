"""Single departures from a setting: what each point in which our records are not as the paper or its code does, alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steadygrad.paper.report import generic
from steadygrad.paper.report.text import to
from steadygrad.paper.report.trial import Group, Trial

OTHER_PROBLEM = {"passes", "epochs", "side"}
"""Trials that differ in these are no departures from the released code, but longer or smaller."""


def words(base: Group, other: Group, **named: str) -> str:
    """What was changed: "slope 3 → 0.5", or as the setting's name has it."""
    changes = base.changes(other)
    rest = {key: pair for key, pair in changes.items() if key not in named}
    told = ", ".join(f"{key} {generic.cell(old)} → {generic.cell(new)}" for key, (old, new) in rest.items())
    return "; ".join([*(named[key] for key in changes if key in named), *([told] if told else [])])


def variants(base: Group | None) -> list[Group]:
    """What departs from a setting, but for longer trials of it."""
    kept = [other for other in base.others if other not in base.longer] if base else []
    return sorted(kept, key=lambda other: (len(base.changes(other)), words(base, other)) if base else ())


def departures(base: Group | None) -> list[Group]:
    return [other for other in variants(base) if base and not OTHER_PROBLEM & set(base.changes(other))]


def beside(base: Group, trial: Trial) -> list[list[Trial]]:
    """A trial with a departure, the same seed without it, and all seeds."""
    others = base.of(trial.method, trial.config["steps"])
    return [[trial], [one for one in others if one.seed == trial.seed], others]


def ranged(trials: Sequence[Trial], measure: Callable[[Trial], float | None], digits: int) -> str:
    """From the lowest to the highest."""
    found = sorted(value for trial in trials if (value := measure(trial)) is not None)
    return to(f"{found[0]:.{digits}f}", f"{found[-1]:.{digits}f}") if found else "–"
