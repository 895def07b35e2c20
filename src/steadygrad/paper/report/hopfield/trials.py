"""The Hopfield records, sorted: the trials of each mode, longer ones as published, and those that depart from a mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report import generic
from steadygrad.paper.report.panels import Points
from steadygrad.paper.report.section import Findings
from steadygrad.paper.report.trial import MODES, WHOLE, Group, Trial, grouped, judged, ratio, read, setting
from steadygrad.paper.report.trial import rank as most
from steadygrad.paper.report.verdicts import Length, Outcome

GOOD = ("bptt", "tbptt", "cg-rbp", "neumann-rbp")
"""The methods of which the paper says that they work."""
K = 20
"""Steps of the truncated methods wherever the paper does not vary them."""
PASSES, LOSS = "pass over the ten images", "mean L1 loss a pixel"
PAPER_PASSES = 1000
BEFORE = {"linearise": "last", "shuffle": False, "ridge": 0.0, "leak": "released"}
"""Settings that the first records do not name, as they were."""
LENGTHS = ("passes", "validate_every", *BEFORE)
"""What may differ between a mode and a longer run of it."""
FREE = ("method", "steps", "seed")
Changes = dict[str, tuple[Any, Any]]
"""Of each setting that differs: from what to what."""


def training(trial: Trial) -> list[float]:
    """Mean |pixel − image| of each pass, from the clean images."""
    return trial.result["training_l1"]


def trained(trial: Trial) -> Points:
    return range(1, 1 + len(training(trial))), training(trial)


def seen(name: str) -> Callable[[Trial], Points]:
    """What was measured at the validated passes, for a curve."""
    return lambda trial: (trial.seen("pass"), trial.seen(name))


def left(trial: Trial) -> float:
    """The final training loss relative to that before any update."""
    return ratio(trial.result["final_loss"], trial.result["initial_loss"]) or 0.0


@dataclass(frozen=True)
class Setting(Group):
    """The trials that differ in nothing but method, K and seed."""

    K: int | None = K

    @property
    def length(self) -> Length:
        return Length(self.setting["passes"], PAPER_PASSES, "passes")

    @property
    def good(self) -> list[Trial]:
        return [trial for method in GOOD for trial in self.of(method)]

    @property
    def counts(self) -> list[int]:
        """Every K that was tried."""
        return sorted({trial.config["steps"] for trial in self.trials if trial.method not in WHOLE})


@dataclass(frozen=True)
class Variant:
    """Trials that depart from a mode in some settings."""

    base: Setting
    changes: Changes
    trials: tuple[Trial, ...]

    def words(self, **named: str) -> str:
        """What was changed: "slope 3 → 0.5", or as the setting's name has it."""
        rest = {key: pair for key, pair in self.changes.items() if key not in named}
        words = ", ".join(f"{key} {generic.cell(old)} → {generic.cell(new)}" for key, (old, new) in rest.items())
        return "; ".join([*(named[key] for key in self.changes if key in named), *([words] if words else [])])


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
    def published(self) -> Setting | None:
        return self.modes.get("as-published")

    @property
    def corrected(self) -> Setting | None:
        return self.modes.get("corrected")

    @property
    def drawn(self) -> int:
        """How many trials the figures of both modes draw."""
        return sum(len(setting.of(method)) for setting in self.all for method in setting.methods())

    def judged(self, rule: Callable[[Setting], Outcome], seeds: Callable[[Setting], int] | None = None) -> Findings:
        """By the longest trials as published that have what the rule takes, and by the corrected ones if they have."""
        published = [*self.longer, *([self.published] if self.published else [])]
        return judged(published, self.corrected, rule, seeds or (lambda setting: setting.seeds))


def sort(records: Sequence[Record]) -> Sorted:
    """The mode's own setting is the one with most methods, then most trials; what is left departs from the nearest mode."""
    groups = grouped(read(records, BEFORE), lambda trial: setting(trial, FREE))
    settings = [
        Setting(of[0].config["mode"], {k: v for k, v in of[0].config.items() if k not in FREE}, tuple(of)) for of in groups
    ]
    modes: dict[str, Setting] = {}
    for name in reversed(MODES):  # the as-published read-out alone, in the corrected setting, is a departure from the latter
        known = [s for s in settings if s.mode == name and not any(list(changes(m, s)) == ["mode"] for m in modes.values())]
        if known:
            modes[name] = max(known, key=rank)
    rest, main = [s for s in settings if s not in modes.values()], modes.get("as-published")
    longer = sorted((s for s in rest if main and is_longer(main, s)), key=lambda s: (s.setting["passes"], *rank(s)), reverse=True)
    variants = [departure(s, list(modes.values())) for s in rest if s not in longer] if modes else []
    variants.sort(key=lambda variant: (MODES.index(variant.base.mode), len(variant.changes), variant.words()))
    return Sorted({name: modes[name] for name in MODES if name in modes}, tuple(longer), tuple(variants))


def rank(found: Setting) -> tuple[int, int, int, int]:
    return *most(found.trials), found.setting["side"], found.setting["passes"]


def is_longer(main: Setting, other: Setting) -> bool:
    return set(changes(main, other)) <= set(LENGTHS) and other.setting["passes"] > main.setting["passes"]


def changes(old: Setting, new: Setting) -> Changes:
    names = generic.keys([old.setting, new.setting])
    pairs = {name: (old.setting.get(name), new.setting.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def departure(found: Setting, modes: Sequence[Setting]) -> Variant:
    base = min(modes, key=lambda mode: len(changes(mode, found)))
    return Variant(base, changes(base, found), tuple(sorted(found.trials, key=lambda t: (t.method, t.seed))))


def norm_of_start(trial: Trial) -> float:
    """‖z₀‖ of original RBP, whose entries are uniform on [0, 1]: √(n/3) for n free neurons."""
    return math.sqrt((trial.config["hidden"] + trial.config["side"] ** 2) / 3)
