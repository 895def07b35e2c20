"""What the page says of the hyperparameter experiment: claims M1 to M4, a file each, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report import generic
from steadygrad.paper.report.hyperopt import hypergradients, m1, m2, m3, m4, trials
from steadygrad.paper.report.hyperopt.trials import FREE, Mode
from steadygrad.paper.report.section import Section
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
    varied = {"T": mode.lengths, "K": mode.counts, "meta steps": sorted({cell.length.ran for cell in mode.cells})}
    return next(trial.config for trial in (*mode.tuned, *mode.errors, *mode.costs)) | {
        **{name: ", ".join(map(str, filter(None, values))) or "–" for name, values in varied.items()},
        "seeds of tuning": seeds_of(mode.tuned),
        "trials not shown: other settings or seeds": mode.left_out,
    }
