"""What the page says of the theory: P1 to P4 and A1 as measured on small random maps, and the data sets."""

from __future__ import annotations

from collections.abc import Sequence

from steadygrad.paper.records import Record
from steadygrad.paper.report import generic
from steadygrad.paper.report.section import Section, Table, present
from steadygrad.paper.report.theory import a1, data, propositions
from steadygrad.paper.report.theory.trials import sort

__all__ = ["section"]


def section(records: Sequence[Record]) -> Section:
    found = sort(records)
    exhibits = present(propositions.figure(found), propositions.table(found), a1.figure(found), a1.table(found), data.table())
    fixed = generic.split([trial.config for trial in (*found.series, *found.penalties)])[1]
    return Section(
        name="theory",
        title="Theory and data",
        parts=(*propositions.parts(found), *a1.parts(found)),
        exhibits=exhibits,
        settings=Table("theory-settings", "Settings that all trials share.", ("setting", "value"), generic.rows(fixed)),
        command="steadygrad run theory --preset standard --out results",
        template="theory/section.html.jinja",
        numbers={"equality": propositions.equality(found)},
    )
