"""The Hopfield records, sorted: the trials of each mode, longer ones as published, and those that depart from a mode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report import generic, sorting
from steadygrad.paper.report.section import Table
from steadygrad.paper.report.trial import TITLES, Group, Trial, ratio
from steadygrad.paper.report.verdicts import Length

GOOD = ("bptt", "tbptt", "cg-rbp", "neumann-rbp")
"""The methods of which the paper says that they work."""
good_seeds = partial(Group.common_seeds, methods=GOOD)
K = 20
"""Steps of the truncated methods wherever the paper does not vary them."""
PAPER_PASSES = 1000
BEFORE = {"linearise": "last", "shuffle": False, "ridge": 0.0, "leak": "released"}
"""Settings that the first records do not name, as they were."""
LENGTHS = ("passes", "validate_every", *BEFORE)
"""What may differ between a mode and a longer run of it."""
FREE = ("method", "steps", "seed")
READOUTS = {"as-published": "state h, L1", "corrected": "φ(bh), cross-entropy"}


def training(trial: Trial) -> list[float]:
    """Mean |pixel − image| of each pass, from the clean images."""
    return trial.result["training_l1"]


def left(trial: Trial) -> float:
    """The final training loss relative to that before any update."""
    return ratio(trial.result["final_loss"], trial.result["initial_loss"]) or 0.0


def ends(group: Group, method: str, K: int | None = None) -> list[float]:
    """The final training loss relative to BPTT's, seed by seed."""
    return [ratio(*(trial.result["final_loss"] for trial in pair)) or 0.0 for pair in group.pairs(method, K)]


def wrong(trial: Trial) -> float:
    """The share of wrong pixels in percent, over ten corruptions drawn after training."""
    return 100 * trial.result["pixel_error_fresh"]


MEASURES = {"final loss": ("final_loss", 3), "% wrong": (wrong, 1)}
"""What is shown of a departure, with its digits."""


def good(group: Group) -> list[Trial]:
    return [trial for method in GOOD for trial in group.of(method)]


def sort(records: Sequence[Record]) -> sorting.Found:
    def group(trials: list[Trial]) -> Group:
        kept = {name: value for name, value in trials[0].config.items() if name not in FREE}
        return Group(kept, tuple(trials), TITLES[kept["mode"]], Length(kept["passes"], PAPER_PASSES, "passes"), K)

    return sorting.sort(sorting.read(records, BEFORE), FREE, LENGTHS, group)


def settings(found: sorting.Found) -> Table:
    def told(s: Group) -> dict[str, Any]:
        return s.setting | {"seeds": s.seeds, "K": ", ".join(map(str, s.counts)) or "–", "pixel and loss": READOUTS[s.mode]}

    return generic.settings([(s.heading.lower(), told(s)) for s in found.shown()], ("mode",))
