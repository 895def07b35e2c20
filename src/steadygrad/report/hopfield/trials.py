"""The Hopfield records, sorted: the trials of each mode, and those that depart from it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from steadygrad.records import Record
from steadygrad.report import generic, style
from steadygrad.report.trial import MODES, TITLES
from steadygrad.report.trial import Trial as AnyTrial

WHOLE = ("bptt", "auto")
"""The methods that have no K."""
K = 20
"""Steps of the truncated methods wherever the paper does not vary them."""


@dataclass(frozen=True)
class Trial(AnyTrial):
    """A trial of this experiment."""

    @property
    def training(self) -> list[float]:
        """Mean |pixel − image| of each pass, from the clean images."""
        return self.result["training_l1"]

    @property
    def start(self) -> float:
        """‖z₀‖ of original RBP, whose entries are uniform on [0, 1]: √(n/3) for n free neurons."""
        return math.sqrt((self.config["hidden"] + self.config["side"] ** 2) / 3)


@dataclass(frozen=True)
class Mode:
    """The trials that differ in nothing but method, K and seed."""

    name: str
    setting: dict[str, Any]
    trials: tuple[Trial, ...]

    @property
    def title(self) -> str:
        return TITLES[self.name]

    def of(self, method: str, steps: int = K) -> list[Trial]:
        """The trials of a method and K, by seed."""
        found = [t for t in self.trials if t.method == method and (method in WHOLE or t.config["steps"] == steps)]
        return sorted(found, key=lambda trial: trial.seed)

    def methods(self, steps: int = K) -> list[str]:
        """The methods that have a trial with this K, in the order of all our figures."""
        return [m for m in style.ordered([t.method for t in self.trials]) if self.of(m, steps)]

    @property
    def counts(self) -> list[int]:
        """Every K that was tried."""
        return sorted({trial.config["steps"] for trial in self.trials if trial.method not in WHOLE})


@dataclass(frozen=True)
class Variant:
    """Trials that depart from a mode in some settings."""

    base: Mode
    changes: dict[str, tuple[Any, Any]]
    """from what to what"""
    trials: tuple[Trial, ...]

    @property
    def words(self) -> str:
        return ", ".join(f"{key} {generic.cell(old)} → {generic.cell(new)}" for key, (old, new) in self.changes.items())


@dataclass(frozen=True)
class Sorted:
    modes: dict[str, Mode]
    variants: tuple[Variant, ...]

    @property
    def all(self) -> list[Mode]:
        return list(self.modes.values())


def sort(records: Sequence[Record]) -> Sorted:
    """The mode's own setting is the one with most methods, then most trials; what is left departs from the nearest mode."""
    groups: dict[str, list[Trial]] = {}
    for record in records:
        if record.result is not None:
            trial = Trial(record.config, record.result, record.measured)
            groups.setdefault(repr(sorted(setting(trial).items())), []).append(trial)
    modes: dict[str, Mode] = {}
    for name in reversed(MODES):  # the as-published read-out alone, in the corrected setting, is a departure from the latter
        candidates = [g for g in groups.values() if g[0].config["mode"] == name and not only_the_mode(g[0], modes)]
        if candidates:
            chosen = max(candidates, key=rank)
            modes[name] = Mode(name, setting(chosen[0]), tuple(chosen))
    chosen = {id(mode.trials[0]) for mode in modes.values()}
    rest = [group for group in groups.values() if id(group[0]) not in chosen]
    variants = [departure(group, list(modes.values())) for group in rest] if modes else []
    variants.sort(key=lambda variant: (MODES.index(variant.base.name), len(variant.changes), variant.words))
    return Sorted({name: modes[name] for name in MODES if name in modes}, tuple(variants))


def setting(trial: Trial) -> dict[str, Any]:
    return {key: value for key, value in trial.config.items() if key not in ("method", "steps", "seed")}


def rank(group: Sequence[Trial]) -> tuple[int, int, int, int]:
    config = group[0].config
    return len({trial.method for trial in group}), len(group), config["side"], config["passes"]


def only_the_mode(trial: Trial, modes: dict[str, Mode]) -> bool:
    return any(list(changes(mode.setting, setting(trial))) == ["mode"] for mode in modes.values())


def changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {key: (old.get(key), new.get(key)) for key in generic.keys([old, new]) if old.get(key) != new.get(key)}


def departure(group: Sequence[Trial], modes: Sequence[Mode]) -> Variant:
    base = min(modes, key=lambda mode: len(changes(mode.setting, setting(group[0]))))
    return Variant(base, changes(base.setting, setting(group[0])), tuple(sorted(group, key=lambda t: (t.method, t.seed))))


def pairs(mode: Mode, method: str, steps: int = K) -> list[tuple[Trial, Trial]]:
    """Trials of a method, each with BPTT from the same seed."""
    exact = {trial.seed: trial for trial in mode.of("bptt")}
    return [(trial, exact[trial.seed]) for trial in mode.of(method, steps) if trial.seed in exact]


def middle(trials: Sequence[Trial], measure: Callable[[Trial], float | None]) -> float | None:
    """The median over the trials in which there is something to measure."""
    found = [value for trial in trials if (value := measure(trial)) is not None]
    return statistics.median(found) if found else None


def largest(values: Sequence[float | None]) -> float | None:
    """The largest of what was measured; infinite if anything was not finite."""
    found = [value for value in values if value is not None]
    if any(not math.isfinite(value) for value in found):
        return math.inf
    return max(found, default=None)


def steady_after(relative: Sequence[float], tolerance: float) -> int | None:
    """The first step from which on every difference is below the tolerance, counted from 1; None if even the last is not."""
    above = [step for step, value in enumerate(relative, 1) if not value < tolerance]
    last = above[-1] if above else 0
    return None if last == len(relative) else last + 1


def start_error(trial: Trial, steps: int) -> float | None:
    """ρᴷ‖z₀‖/‖b‖ at its largest along training: what is left of RBP's start after K steps, relative to the cotangent b."""
    return largest([left_of_start(trial, steps, rho, b) for rho, b in zip(*seen_both(trial), strict=True)])


def left_of_start(trial: Trial, steps: int, rho: float | None, b: float | None) -> float | None:
    return rho**steps * trial.start / b if rho is not None and b else None


def seen_both(trial: Trial) -> tuple[list[Any], list[Any]]:
    return trial.seen("spectral_radius"), trial.seen("cotangent")
