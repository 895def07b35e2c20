"""The records of the theory, sorted: maps whose gradients were compared, and maps that were penalised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadygrad.paper import datasets
from steadygrad.paper.records import Record
from steadygrad.paper.report import generic
from steadygrad.paper.report.section import Table
from steadygrad.paper.report.sorting import read
from steadygrad.paper.report.trial import Trial, seeds_of
from steadygrad.paper.report.verdicts import Finding, Findings, Outcome

__all__ = ["datasets"]  # for the templates
DATA = {"cora": (2708, 5429, 7, 1433), "pubmed": (19717, 44338, 3, 500)}
"""The paper's counts of nodes, links, classes and features."""


@dataclass(frozen=True)
class Maps:
    series: tuple[Trial, ...]
    penalties: tuple[Trial, ...]

    @property
    def radii(self) -> list[float]:
        return sorted({trial.config["radius"] for trial in self.series})

    def at(self, radius: float) -> list[Trial]:
        return [trial for trial in self.series if trial.config["radius"] == radius]

    def of(self, penalty: str) -> list[Trial]:
        return [trial for trial in self.penalties if trial.config["penalty"] == penalty]

    def proved(self, holds: bool | None) -> Findings:
        """A statement without modes: the same maps answer for both, in words once."""
        seeds = seeds_of((*self.series, *self.penalties))
        return Finding(Outcome.of(holds), of=holds, seeds=seeds), Finding(Outcome.of(holds), seeds=seeds)


def sort(records: Sequence[Record]) -> Maps:
    """Of the maps of the larger size, where there are several: quick ones do not push aside what is still being run."""
    trials = read(records, {})
    size = max((trial.config["size"] for trial in trials), default=0)
    kept = [trial for trial in trials if trial.config["size"] == size]
    return Maps(*(tuple(trial for trial in kept if trial.config["part"] == part) for part in ("series", "penalty")))


def settings(maps: Maps) -> Table:
    return generic.settings([("value", generic.alike([trial.config for trial in (*maps.series, *maps.penalties)]))])
