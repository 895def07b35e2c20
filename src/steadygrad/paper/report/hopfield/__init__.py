"""What the page says of the Hopfield experiment: claims H1 to H4, a file each, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence

from steadygrad.paper.records import Record
from steadygrad.paper.report.hopfield import h1, h2, h3, h4, more
from steadygrad.paper.report.hopfield.trials import sort
from steadygrad.paper.report.section import Section, present

__all__ = ["section"]


def section(records: Sequence[Record]) -> Section:
    found = sort(records)
    exhibits = present(
        h1.figure(found),
        h2.success_table(found),
        h2.start_table(found),
        h2.figure(found),
        *h3.figures(found),
        h4.figure(found),
        h4.table(found),
        more.energy(found),
        more.jacobian(found),
        more.ablation(found),
        more.long(found),
        more.long_table(found),
        more.cost(found),
        more.fidelity(found),
    )
    return Section(
        name="hopfield",
        title="Associative memory",
        parts=tuple(part for claim in (h1, h2, h3, h4) for part in claim.parts(found)),
        exhibits=exhibits if found.all else (),
        settings=more.settings(found),
        command="steadygrad run hopfield --preset standard --out results",
        template="hopfield/section.html.jinja",
        numbers={
            "h1": h1.numbers(found),
            "h2": h2.numbers(found),
            "h3": h3.numbers(found),
            "h4": h4.numbers(found),
            "more": more.numbers(found),
        },
    )
