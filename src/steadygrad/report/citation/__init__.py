"""What the page says of the citation experiment: claims G1 to G3, from its records alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.figure import Figure as Picture

from steadygrad.records import Record
from steadygrad.report.citation import figures, tables
from steadygrad.report.citation.claims import claims
from steadygrad.report.citation.trials import NAMES, TITLES, Group, Sorted, sort
from steadygrad.report.section import Block, Figure, Section

__all__ = ["section"]

ABOUT = (
    "Documents of a citation graph are classified from a random 1 % of labels; 49 % of the nodes choose the epoch, 50 % are the "
    "test. As published: a GRU whose start is the node's features and whose input is the sum of the neighbours' states, T = 100 "
    "steps, K = 5, SGD with momentum; the features enter through the start only, on which a steady state does not depend if "
    "it is the only one. "
    "Corrected: h ← (1 − α) Â h + α z(x), so that x enters at every step as the paper's Equation 1 has it, Â has norm 1 and α is "
    "learned: a contraction whatever the weights, solved to a tolerance. APPNP is ten steps of the same diffusion with a fixed α."
)


def section(records: Sequence[Record]) -> Section:
    """Verdicts, tables and figures, each computed from the records; what they cannot show is left out or named."""
    found = sort(records)
    return Section(
        name="citation",
        title="Citation graphs",
        about=ABOUT,
        claims=claims(found),
        blocks=tuple(blocks(found)) if found.groups else ("No trial has a result.",),
        settings=tables.settings(found),
        command="steadygrad run citation --preset standard --out results",
    )


def blocks(found: Sorted) -> list[Block]:
    made: list[Block] = ["## Accuracy", *(tables.accuracy(found, graph) for graph in found.graphs)]
    made += list(filter(None, [worth(found)]))
    if (others := tables.longer(found)) is not None:
        made.append(others)
    made.append("## Learning curves, and whether the state is steady")
    for graph in found.graphs:
        groups = [group for group in found.on(graph) if group.gradients()]
        if groups:
            made += curves(graph, groups)
    made += ["## Diagnosis", diagnosis(found), tables.diagnosis(found)]
    return [*made, "## Cost", tables.cost(found)]


def curves(graph: str, groups: Sequence[Group]) -> list[Figure]:
    name, stem = NAMES[graph], f"citation-g3-{graph}"
    modes = " and ".join(f"the {TITLES[group.mode].lower()} mode" for group in groups)
    band = "Lines: mean over seeds; bands: a standard deviation."
    drawn: list[tuple[str, str, str, Callable[[Sequence[Group]], Picture]]] = [
        (stem, f"G3, {name}: training loss and validation accuracy. {band}", "Loss and accuracy", figures.learning),
        (
            f"{stem}-difference",
            f"G3, {name}: how far each step moves the state of the trained networks. Left: divided by the number of elements, as "
            f"the paper plots it, which makes any difference small; right: relative to the state. {band}",
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


def worth(found: Sorted) -> str:
    """What the steady state is worth beside APPNP, which stops after ten steps."""
    parts: list[str] = []
    for graph in found.graphs:
        group = found.of(graph, "corrected")
        theirs = {} if group is None else {trial.seed: trial.test for trial in group.of("appnp")}
        gaps = [] if group is None else [t.test - theirs[t.seed] for t in group.of("auto") if t.seed in theirs]
        if len(gaps) > 2:
            error = statistics.stdev(gaps) / len(gaps) ** 0.5
            parts.append(f"{NAMES[graph]} {statistics.fmean(gaps):+.1f} ± {error:.1f} points over {len(gaps)} seeds")
    if not parts:
        return ""
    return (
        f"Steady state with auto minus APPNP with the same settings, seed by seed, mean and standard error: {'; '.join(parts)}. "
        "Where the two are level, the accuracy comes from the diffusion and its settings, not from going to the steady state."
    )


def diagnosis(found: Sorted) -> str:
    """The first sentence of sg.diagnose for Neumann-RBP in each place that has one."""
    parts: list[str] = []
    for group in found.groups:
        trial = next((trial for trial in group.of("neumann-rbp") if trial.result.get("diagnosis")), None)
        if trial is not None:
            parts.append(f"{group.title} (Neumann-RBP, seed {trial.seed}): {trial.result['diagnosis']['verdict']}")
    return " ".join(parts) or "No trial was diagnosed."
