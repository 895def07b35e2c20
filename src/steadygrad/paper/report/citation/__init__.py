"""What the page says of the citation experiment: claims G1 to G3, a file each, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence

from steadygrad.paper.records import Record
from steadygrad.paper.report import generic
from steadygrad.paper.report.citation import cost, g1, g2, g3, trials
from steadygrad.paper.report.section import Section
from steadygrad.paper.report.writing import Writer

__all__ = ["section"]
ONLY_CORRECTED = ("length", "hidden", "dropout", "alpha", "prior")
"""Settings without effect as published."""


def section(records: Sequence[Record]) -> Section:
    found = trials.sort(records)
    columns = {
        place.title: {k: None if k in ONLY_CORRECTED and place.mode == "as-published" else v for k, v in place.setting.items()}
        | {"seeds": place.seeds}
        for place in found.all
    }
    return Writer("citation", found, trials).write(
        "Citation graphs", (g1, g2, g3, cost, "fidelity"), generic.settings(columns, ("graph", "mode"))
    )
