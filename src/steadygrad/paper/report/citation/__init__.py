"""What the page says of the citation experiment: claims G1 to G3, a file each, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence

from steadygrad.paper.records import Record
from steadygrad.paper.report.citation import g1, g2, g3, more
from steadygrad.paper.report.citation.trials import sort
from steadygrad.paper.report.section import Section, present

__all__ = ["section"]


def section(records: Sequence[Record]) -> Section:
    found = sort(records)
    exhibits = present(
        *g1.tables(found), g1.longer(found), g2.table(found), *g3.figures(found), *g3.diagnoses(found), *more.costs(found)
    )
    exhibits += present(*more.turns(found))
    return Section(
        name="citation",
        title="Citation graphs",
        parts=tuple(part for claim in (g1, g2, g3) for part in claim.parts(found)),
        exhibits=exhibits,
        settings=more.settings(found),
        command="steadygrad run citation --preset standard --out results",
        template="citation/section.html.jinja",
        numbers={"g1": g1.numbers(found), "g3": g3.numbers(found), "exact": more.exact(found)},
    )
