"""What the page says of the citation experiment: claims G1 to G3, from its records alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.figure import Figure as Picture

from steadygrad.records import Record
from steadygrad.report.citation import figures, measures, tables, words
from steadygrad.report.citation.claims import claims
from steadygrad.report.citation.trials import NAMES, TITLES, Group, Sorted, sort
from steadygrad.report.section import Block, Figure, Section

__all__ = ["section"]


def section(records: Sequence[Record]) -> Section:
    """Verdicts, tables and figures, each computed from the records; what they cannot show is left out or named."""
    found = sort(records)
    return Section(
        name="citation",
        title="Citation graphs",
        about=words.ABOUT,
        claims=claims(found),
        blocks=tuple(blocks(found)) if found.groups else ("No trial has a result.",),
        settings=tables.settings(found),
        command="steadygrad run citation --preset standard --out results",
    )


def blocks(found: Sorted) -> list[Block]:
    made: list[Block | None] = ["## Accuracy", words.SCORED, words.epochs(found)]
    made += [tables.accuracy(found, graph) for graph in found.graphs]
    made += [tables.artbp(found), tables.longer(found)]
    shares, worth = words.truncation(found), words.worth(found)
    if shares or worth:
        made += ["## What K steps leave, and what the steady state is worth", shares, worth]
    trained = [group for group in found.groups if group.gradients()]
    made.append("## Learning curves, and whether the state is steady")
    for graph in found.graphs:
        if groups := [group for group in trained if group.graph == graph]:
            made += curves(graph, groups)
    made += ["## Diagnosis", words.diagnosis(found), words.MEASURED if trained else "", *map(measures.diagnosis, trained)]
    made += ["## Cost", words.COSTS, *map(measures.cost, found.groups)]
    return [block for block in made if block]


def curves(graph: str, groups: Sequence[Group]) -> list[Figure]:
    name, stem = NAMES[graph], f"citation-g3-{graph}"
    modes = " and ".join(f"the {TITLES[group.mode].lower()} mode" for group in groups)
    band = "Lines: mean over seeds, geometric on logarithmic axes; bands: a standard deviation."
    cut = " Methods whose curve starts far above the others leave the panel." if any(map(figures.clipped, groups)) else ""
    drawn: list[tuple[str, str, str, Callable[[Sequence[Group]], Picture]]] = [
        (stem, f"G3, {name}: training loss and validation accuracy. {band}", "Loss and accuracy", figures.learning),
        (
            f"{stem}-difference",
            f"G3, {name}: how far each step moves the state of the trained networks. Left: divided by the number of elements, as "
            f"the paper plots it, which makes any difference small; right: relative to the state.{cut} {band}",
            "Difference norm over steps in two scalings",
            figures.differences,
        ),
        (
            f"{stem}-adjoint",
            f"{name}: the last step's relative difference and the residual of the adjoint equation through training. {band}",
            "Difference of the last step and adjoint residual over epochs",
            figures.adjoint,
        ),
    ]
    count = sum(len(group.of(method)) for group in groups for method in group.gradients())
    return [
        Figure(stem, caption, f"{alt} of all methods on {name} in {modes}.", partial(draw, groups), count)
        for stem, caption, alt, draw in drawn
    ]
