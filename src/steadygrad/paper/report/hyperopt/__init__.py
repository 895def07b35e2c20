"""What the page says of the hyperparameter experiment: claims M1 to M4, a file each, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence

from steadygrad.paper.records import Record
from steadygrad.paper.report.hyperopt import hypergradients, m1, m2, m3, m4
from steadygrad.paper.report.hyperopt.trials import sort
from steadygrad.paper.report.section import Section, present

__all__ = ["section"]


def section(records: Sequence[Record]) -> Section:
    found = sort(records)
    exhibits = present(
        *m1.figures(found),
        *m1.tables(found),
        *m2.figures(found),
        *m2.tables(found),
        m3.table(found),
        m3.figure(found),
        m3.every(found),
        *m4.figures(found),
        m4.table(found),
        *hypergradients.figures(found),
        hypergradients.table(found),
        hypergradients.ways(found),
    )
    return Section(
        name="hyperopt",
        title="Hyperparameters",
        parts=tuple(part for claim in (m1, m2, m3, m4) for part in claim.parts(found)),
        exhibits=exhibits,
        settings=hypergradients.settings(found),
        command="steadygrad run hyperopt --preset standard --out results",
        template="hyperopt/section.html.jinja",
        numbers={"m1": m1.numbers(found), "m3": m3.numbers(found), "errors": hypergradients.numbers(found)},
    )
