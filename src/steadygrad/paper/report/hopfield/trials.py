"""The Hopfield records, sorted: the trials of each mode, longer ones as published, and those that depart from a mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from steadygrad.paper.records import Record
from steadygrad.paper.report.panels import Points
from steadygrad.paper.report.sorting import Found, read
from steadygrad.paper.report.sorting import sort as sort_trials
from steadygrad.paper.report.trial import TITLES, Group, Trial, ratio, seeds_of
from steadygrad.paper.report.verdicts import Length

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


def good(group: Group) -> list[Trial]:
    return [trial for method in GOOD for trial in group.of(method)]


def good_seeds(group: Group) -> int:
    return seeds_of(good(group))


def drawn(found: Found) -> int:
    """How many trials the figures of both modes draw."""
    return sum(len(group.of(method)) for group in found.all for method in group.methods())


def sort(records: Sequence[Record]) -> Found:
    def group(trials: list[Trial]) -> Group:
        kept = {name: value for name, value in trials[0].config.items() if name not in FREE}
        return Group(kept, tuple(trials), TITLES[kept["mode"]], Length(kept["passes"], PAPER_PASSES, "passes"), K)

    return sort_trials(read(records, BEFORE), FREE, LENGTHS, group)


def norm_of_start(trial: Trial) -> float:
    """‖z₀‖ of original RBP, whose entries are uniform on [0, 1]: √(n/3) for n free neurons."""
    return math.sqrt((trial.config["hidden"] + trial.config["side"] ** 2) / 3)
