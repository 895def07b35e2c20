"""The hyperopt records, sorted: of each mode the trials that tune, those that compare hypergradients, and those that cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report import generic, style
from steadygrad.paper.report.section import Table
from steadygrad.paper.report.sorting import grouped, rank, read, setting
from steadygrad.paper.report.trial import MODES, TITLES, Group, Trial, seeds_of
from steadygrad.paper.report.verdicts import Finding, Findings, Length

UNROLLED = ("bptt", *style.CHECKPOINTED, "tbptt", "forward")
"""The methods that go back through the training as it was, hence take no last step of their own choice."""
LASTS = {"": "–", "full": "all images", "average": "averaged batches", "step": "one mini-batch", "fresh": "fresh batches"}
"""On what an implicit method takes the last step, in the order of tables; nothing where there is no choice."""
WAYS = tuple(LASTS)[1:]
VARIED = ("task", "mode", "method", "steps", "training_steps", "meta_steps", "seed")
TUNED = (*VARIED, "reference_every", "trajectory", "shuffle")
"""What may differ between tuning trials of one setting."""
FREE = (*TUNED, "last")
"""What may differ between other trials of one setting."""
PAPER_META_STEPS = 100
PAPER_SETTINGS, PAPER_STEPS = 8, 3
"""The paper's T and K together, and the steps from one T to the next."""
LEAST_T, LEAST_META_STEPS = 100, 20
COMPARED = ("bptt", "tbptt", "rbp-uniform", "neumann-rbp")
"""The methods of which M1 and M2 speak."""
BEFORE = {"shuffle": False}
"""Settings that the first records do not name, as they were."""
PAPER_K = 50
"""The K that is shown where there is room for one: the smaller of the paper's figures."""


def last_of(trial: Trial) -> str:
    """On what a method takes the last step; nothing where it has no choice."""
    last = trial.config.get("last", "full")
    all_alike = trial.config["mode"] == "corrected" and last == "step"  # every step takes all images there
    return "" if trial.method in UNROLLED else "full" if all_alike else last


@dataclass(frozen=True)
class Cell(Group):
    """The tuning trials of one T and K, which differ in method and seed only; methods without a K are in every K, with the
    seeds of the others."""

    T: int = 0
    """training steps"""

    @property
    def alike(self) -> tuple[int, bool]:
        """What must be the same where one T is compared with another: meta steps, and the order of the mini-batches."""
        return self.length.ran, self.setting["shuffle"]


@dataclass(frozen=True)
class Mode:
    """The trials of a mode, task by task, each in its main setting."""

    name: str
    cells: tuple[Cell, ...]
    reshuffled: tuple[Trial, ...]
    """tuning trials that draw the mini-batches anew, beside others that do not"""
    errors: tuple[Trial, ...]
    costs: tuple[Trial, ...]
    left_out: int
    """trials with other settings, too few meta steps, or seeds that no method with a K has"""

    @property
    def title(self) -> str:
        return TITLES[self.name]

    @property
    def lengths(self) -> list[int]:
        return sorted({cell.T for cell in self.cells})

    @property
    def counts(self) -> list[int]:
        return sorted({cell.K or 0 for cell in self.cells})

    @property
    def tuned(self) -> tuple[Trial, ...]:
        """Every tuning trial that is shown, once."""
        return tuple({id(trial): trial for cell in self.cells for trial in cell.trials}.values())

    def evidence(self, enough: Callable[[Cell], bool]) -> list[Cell]:
        """The settings that have what it takes. Too little training or tuning is for trying things out."""
        return [c for c in self.cells if c.T >= LEAST_T and c.length.ran >= LEAST_META_STEPS and enough(c)]


@dataclass(frozen=True)
class Sorted:
    all: tuple[Mode, ...]

    def of(self, name: str) -> Mode | None:
        return next((mode for mode in self.all if mode.name == name), None)

    @property
    def tuned(self) -> list[Mode]:
        return [mode for mode in self.all if mode.cells]

    def judged(self, rule: Callable[[Mode], Finding]) -> Findings:
        """Both modes by one rule."""
        published, corrected = (rule(mode) if (mode := self.of(name)) else Finding() for name in MODES)
        return published, corrected


def sort(records: Sequence[Record]) -> Sorted:
    trials = read(records, BEFORE)
    modes = (sort_mode(name, [trial for trial in trials if trial.config.get("mode") == name]) for name in MODES)
    return Sorted(tuple(mode for mode in modes if mode.cells or mode.errors or mode.costs))


def sort_mode(name: str, trials: Sequence[Trial]) -> Mode:
    frees = {"tune": TUNED, "errors": FREE, "cost": FREE}
    tune, errors, costs = (main([t for t in trials if task(t) == kind], free) for kind, free in frees.items())
    made = tuple(cells(tune))
    tuned = {id(trial) for cell in made for trial in cell.trials}
    anew = tuple(trial for trial in tune if trial.config["shuffle"] and id(trial) not in tuned)
    shown = tuned | {id(trial) for trial in (*anew, *errors, *costs)}
    return Mode(name, made, anew, tuple(errors), tuple(costs), len(trials) - len(shown))


def task(trial: Trial) -> str:
    """What the trial was for, if it also has what such a trial leaves."""
    kind = str(trial.config.get("task"))
    needed = {"tune": trial.result.get("meta_loss"), "errors": trial.result.get("entries"), "cost": trial.measured}
    return kind if needed.get(kind) else ""


def main(trials: Sequence[Trial], free: Sequence[str]) -> list[Trial]:
    """The trials of the setting on which most training was spent: quick ones do not push aside what is still being run. Of costs
    as large, those that were measured more often."""

    def spent(group: list[Trial]) -> tuple[int, int]:
        return sum(trial.T * trial.config["meta_steps"] for trial in group), group[0].config.get("repeats", 0)

    return max(grouped(trials, lambda trial: setting(trial, free)), key=spent, default=[])


def cells(trials: Sequence[Trial]) -> Iterable[Cell]:
    """Every T and K; of trials with different numbers of meta steps those that most methods share, then the longer ones."""
    for T in sorted({trial.T for trial in trials}):
        of_length = [trial for trial in trials if trial.T == T]
        for K in sorted({trial.K for trial in of_length} - {0}) or [0]:
            seeds = {trial.seed for trial in of_length if trial.K == K}
            here = [trial for trial in of_length if trial.K in (0, K) and trial.seed in seeds]
            tried = grouped(here, lambda trial: (trial.config["meta_steps"], trial.config["shuffle"]))
            kept = max(tried, key=lambda group: (rank(group), group[0].config["meta_steps"]))
            length = Length(kept[0].config["meta_steps"], PAPER_META_STEPS, "meta steps")
            title = f"T = {T}, K = {K}" if K else f"T = {T}"
            yield Cell(kept[0].config, tuple(kept), title, length, K, T=T)


def nearest(counts: Iterable[int], wanted: int = PAPER_K) -> int | None:
    return min(sorted(counts), key=lambda count: abs(count - wanted), default=None)


def settings(found: Sorted) -> Table:
    """The settings of each mode, and what varies in it."""
    columns: list[tuple[str, dict[str, Any]]] = []
    for mode in found.all:
        varied = {"T": mode.lengths, "K": mode.counts, "meta steps": sorted({cell.length.ran for cell in mode.cells})}
        varied["T with mini-batches drawn anew"] = sorted({cell.T for cell in mode.cells if cell.setting["shuffle"]})
        told = next(trial.config for trial in (*mode.tuned, *mode.errors, *mode.costs)) | {
            **{name: ", ".join(map(str, filter(None, values))) or "–" for name, values in varied.items()},
            "repeats": next((trial.config["repeats"] for trial in mode.costs), None),  # tuning has none
            "seeds of tuning": seeds_of(mode.tuned),
            "trials not shown: other settings or seeds": mode.left_out,
        }
        columns.append((mode.title.lower(), told))
    return generic.settings(columns, FREE)
