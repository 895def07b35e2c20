"""The Hopfield records, sorted: the trials of each mode, longer ones as published, and those that depart from a mode."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report import generic, style
from steadygrad.paper.report.panels import Points
from steadygrad.paper.report.trial import MODES, TITLES, Trial, by_seed, first, grouped, largest, ratio, read, seeds_of
from steadygrad.paper.report.verdicts import Length, Outcome

WHOLE = ("bptt", "auto")
"""The methods that have no K."""
GOOD = ("bptt", "tbptt", "cg-rbp", "neumann-rbp")
"""The methods of which the paper says that they work."""
K = 20
"""Steps of the truncated methods wherever the paper does not vary them."""
PAPER_PASSES = 1000
BEFORE = {"linearise": "last", "shuffle": False, "ridge": 0.0, "leak": "released"}
"""Settings that the first records do not name, as they were."""
LENGTHS = ("passes", "validate_every", *BEFORE)
"""What may differ between a mode and a longer run of it."""


@dataclass(frozen=True)
class HopfieldTrial(Trial):
    """A trial of this experiment."""

    @property
    def training(self) -> list[float]:
        """Mean |pixel − image| of each pass, from the clean images."""
        return self.result["training_l1"]

    @property
    def start(self) -> float:
        """‖z₀‖ of original RBP, whose entries are uniform on [0, 1]: √(n/3) for n free neurons."""
        return math.sqrt((self.config["hidden"] + self.config["side"] ** 2) / 3)

    @property
    def left(self) -> float:
        """The final training loss relative to that before any update."""
        return ratio(self.result["final_loss"], self.result["initial_loss"]) or 0.0


Series = Callable[[HopfieldTrial], Sequence[float | None]]


@dataclass(frozen=True)
class Setting:
    """The trials that differ in nothing but method, K and seed."""

    mode: str
    setting: dict[str, Any]
    trials: tuple[HopfieldTrial, ...]

    @property
    def title(self) -> str:
        return TITLES[self.mode]

    @property
    def length(self) -> Length:
        return Length(self.setting["passes"], PAPER_PASSES, "passes")

    def of(self, method: str, steps: int = K) -> list[HopfieldTrial]:
        """The trials of a method and K, by seed."""
        return by_seed(t for t in self.trials if t.method == method and (method in WHOLE or t.config["steps"] == steps))

    def good(self) -> list[HopfieldTrial]:
        return [trial for method in GOOD for trial in self.of(method)]

    def methods(self, steps: int = K) -> list[str]:
        """The methods that have a trial with this K, in the order of all our figures."""
        return [m for m in style.ordered([t.method for t in self.trials]) if self.of(m, steps)]

    @property
    def counts(self) -> list[int]:
        """Every K that was tried."""
        return sorted({trial.config["steps"] for trial in self.trials if trial.method not in WHOLE})

    @property
    def seeds(self) -> int:
        return seeds_of(self.trials)

    def pairs(self, method: str, steps: int = K) -> list[tuple[HopfieldTrial, HopfieldTrial]]:
        """Trials of a method, each with BPTT from the same seed."""
        exact = {trial.seed: trial for trial in self.of("bptt")}
        return [(trial, exact[trial.seed]) for trial in self.of(method, steps) if trial.seed in exact]

    def curves(
        self, series: Callable[[HopfieldTrial], Sequence[float | None]], first: int | None = None
    ) -> dict[str, list[Points]]:
        """What a figure draws: over the validated passes, or over first, first + 1, …"""
        found: dict[str, list[Points]] = {}
        for method in self.methods():
            for trial in self.of(method):
                y = series(trial)
                found.setdefault(method, []).append((trial.seen("pass") if first is None else range(first, first + len(y)), y))
        return found


@dataclass(frozen=True)
class Variant:
    """Trials that depart from a mode in some settings."""

    base: Setting
    changes: dict[str, tuple[Any, Any]]
    """from what to what"""
    trials: tuple[HopfieldTrial, ...]

    @property
    def words(self) -> str:
        return ", ".join(f"{key} {generic.cell(old)} → {generic.cell(new)}" for key, (old, new) in self.changes.items())


@dataclass(frozen=True)
class Sorted:
    modes: dict[str, Setting]
    longer: tuple[Setting, ...]
    """as published with more passes than its mode, the longest first"""
    variants: tuple[Variant, ...]

    @property
    def all(self) -> list[Setting]:
        return list(self.modes.values())

    @property
    def published(self) -> list[Setting]:
        """As published, the longest first: a claim is judged by the first that has what it takes."""
        return [*self.longer, *(s for s in self.all if s.mode == "as-published")]

    @property
    def corrected(self) -> Setting | None:
        return self.modes.get("corrected")

    def judged(self, rule: Callable[[Setting], Outcome]) -> tuple[Setting | None, Setting | None]:
        """By which a claim is judged: as published the longest that has what the rule takes, and the corrected one if it has."""
        return first(self.published, rule), first([self.corrected] if self.corrected else [], rule)


def sort(records: Sequence[Record]) -> Sorted:
    """The mode's own setting is the one with most methods, then most trials; what is left departs from the nearest mode."""
    groups = grouped(read(HopfieldTrial, records, BEFORE), lambda trial: repr(sorted(setting(trial).items())))
    settings = [Setting(group[0].config["mode"], setting(group[0]), tuple(group)) for group in groups]
    modes: dict[str, Setting] = {}
    for name in reversed(MODES):  # the as-published read-out alone, in the corrected setting, is a departure from the latter
        candidates = [s for s in settings if s.mode == name and not only_the_mode(s, modes)]
        if candidates:
            modes[name] = max(candidates, key=rank)
    rest = [s for s in settings if s not in modes.values()]
    main = modes.get("as-published")
    longer = [s for s in rest if main is not None and is_longer(main, s)]
    longer.sort(key=lambda s: (s.setting["passes"], *rank(s)), reverse=True)
    variants = [departure(s, list(modes.values())) for s in rest if s not in longer] if modes else []
    variants.sort(key=lambda variant: (MODES.index(variant.base.mode), len(variant.changes), variant.words))
    return Sorted({name: modes[name] for name in MODES if name in modes}, tuple(longer), tuple(variants))


def setting(trial: HopfieldTrial) -> dict[str, Any]:
    return {key: value for key, value in trial.config.items() if key not in ("method", "steps", "seed")}


def rank(found: Setting) -> tuple[int, int, int, int]:
    config = found.setting
    return len({trial.method for trial in found.trials}), len(found.trials), config["side"], config["passes"]


def only_the_mode(found: Setting, modes: dict[str, Setting]) -> bool:
    return any(list(changes(mode.setting, found.setting)) == ["mode"] for mode in modes.values())


def is_longer(main: Setting, other: Setting) -> bool:
    return set(changes(main.setting, other.setting)) <= set(LENGTHS) and other.setting["passes"] > main.setting["passes"]


def changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {key: (old.get(key), new.get(key)) for key in generic.keys([old, new]) if old.get(key) != new.get(key)}


def departure(found: Setting, modes: Sequence[Setting]) -> Variant:
    base = min(modes, key=lambda mode: len(changes(mode.setting, found.setting)))
    trials = tuple(sorted(found.trials, key=lambda t: (t.method, t.seed)))
    return Variant(base, changes(base.setting, found.setting), trials)


def start_error(trial: HopfieldTrial, steps: int) -> float | None:
    """ρᴷ‖z₀‖/‖b‖ at its largest along training: what is left of RBP's start after K steps, relative to the cotangent b."""
    return largest(left_of_start(trial, steps))


def left_of_start(trial: HopfieldTrial, steps: int) -> list[float | None]:
    """ρᴷ‖z₀‖/‖b‖ at every validated pass."""
    seen = zip(trial.seen("spectral_radius"), trial.seen("cotangent"), strict=True)
    return [rho**steps * trial.start / b if rho is not None and b else None for rho, b in seen]


def wrong_pixels(trials: Sequence[HopfieldTrial]) -> float:
    """The share of pixels that are wrong, mean over trials and ten corruptions drawn after training."""
    return statistics.fmean(trial.result["pixel_error_fresh"] for trial in trials)
