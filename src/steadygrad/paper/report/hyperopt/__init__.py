"""What the page says of the hyperparameter experiment: claims M1 to M4, a file each, from its records alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report import generic
from steadygrad.paper.report.hyperopt import hypergradients, m1, m2, m3, m4, trials
from steadygrad.paper.report.hyperopt.trials import FREE, Mode
from steadygrad.paper.report.section import Section
from steadygrad.paper.report.text import number
from steadygrad.paper.report.trial import seeds_of
from steadygrad.paper.report.writing import Writer

__all__ = ["section"]


def section(records: Sequence[Record]) -> Section:
    found = trials.sort(records)
    claims = m1, m2, m3, m4, hypergradients
    settings = generic.settings({mode.title.lower(): column(mode) for mode in found.all}, FREE)
    return Writer("hyperopt", found, trials).write("Hyperparameters", claims, settings)


def column(mode: Mode) -> dict[str, Any]:
    """The settings of a mode, and what varies in it."""
    shuffled = sorted({trial.config["shuffle"] for trial in mode.tuned})
    return next(trial.config for trial in (*mode.tuned, *mode.errors, *mode.costs)) | {
        "T": listed(mode.lengths),
        "K": listed(mode.counts),
        "meta steps": listed(sorted({cell.length.ran for cell in mode.cells})),
        "mini-batches drawn anew": " and ".join(map(number, shuffled)) or "–",
        "seeds of tuning": seeds_of(mode.tuned),
        "trials not shown: other settings or seeds": mode.left_out,
    }


def listed(values: Iterable[int | None]) -> str:
    return ", ".join(str(value) for value in values if value is not None) or "–"
