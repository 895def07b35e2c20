"""The theory records, sorted: maps whose gradients were compared, and maps that were penalised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadygrad.paper.records import Record
from steadygrad.paper.report.section import Finding, Part, judged
from steadygrad.paper.report.trial import Trial, read, seeds_of
from steadygrad.paper.report.verdicts import Outcome


@dataclass(frozen=True)
class Sorted:
    series: tuple[Trial, ...]
    penalties: tuple[Trial, ...]

    @property
    def radii(self) -> list[float]:
        return sorted({trial.config["radius"] for trial in self.series})

    def at(self, radius: float) -> list[Trial]:
        return [trial for trial in self.series if trial.config["radius"] == radius]

    def of(self, penalty: str) -> list[Trial]:
        return [trial for trial in self.penalties if trial.config["penalty"] == penalty]

    @property
    def seeds(self) -> int:
        return seeds_of((*self.series, *self.penalties))

    def proved(self, name: str, text: str, paper: str, outcome: Outcome, words: str, why: str) -> Part:
        """A statement without modes: the same maps answer for both."""
        if outcome is Outcome.MISSING:
            return judged(name, text, paper, None, None, why)
        return judged(name, text, paper, Finding(outcome, words, self.seeds), Finding(outcome, seeds=self.seeds), why)


def sort(records: Sequence[Record]) -> Sorted:
    """The maps of the larger size, where there are several: quick ones do not push aside what is still being run."""
    trials = read(Trial, records, {})
    size = max((trial.config["size"] for trial in trials), default=0)
    kept = [trial for trial in trials if trial.config["size"] == size]
    parts = ([trial for trial in kept if trial.config["part"] == part] for part in ("series", "penalty"))
    return Sorted(*(tuple(part) for part in parts))
