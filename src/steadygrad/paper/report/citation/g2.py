"""G2: ARTBP with one random cut on Cora: uniform below truncated Poisson, both below Neumann-RBP (validation accuracy)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from steadygrad.paper.report.citation.g1 import counts
from steadygrad.paper.report.citation.trials import PAPER, Group, Sorted, label, validated
from steadygrad.paper.report.section import Finding, Part, Table, judged
from steadygrad.paper.report.trial import TITLES
from steadygrad.paper.report.verdicts import Outcome, above, all_of

METHODS = ("artbp-uniform", "artbp-poisson", "neumann-rbp")
PAPER_SEEDS = 10


def parts(found: Sorted) -> list[Part]:
    group, fixed = found.judged("cora", order)
    published = corrected = None
    why = f"The paper's own last step is {paper_errors():.1f} standard errors"
    if group is not None:
        published = Finding(order(group), means(group), group.seeds(*METHODS), group.length)
        why += f"; ours: {gaps_words(group)}"
    if fixed is not None:
        corrected = Finding(order(fixed), f"{means(fixed)}: ARTBP is unbiased, K = 5 is not", fixed.seeds(*METHODS))
    text = "Cora: uniform ARTBP < Poisson ARTBP < Neumann-RBP, by validation accuracy"
    paper = " < ".join(PAPER["cora"][method].partition(" ")[0] for method in METHODS)
    return [judged("G2", text, paper, published, corrected, f"{why}.")]


def validation(trial: Any) -> float:
    return trial.validation


def order(group: Group) -> Outcome:
    """Each above the one before."""
    return all_of(above(group.gap(later, earlier, validation)) for earlier, later in pairwise(METHODS))


def means(group: Group) -> str:
    found = [group.mean(method, validation) for method in METHODS]
    return ", ".join(f"{value:.1f}" for value in found if value is not None)


def gaps_words(group: Group) -> str:
    return ", ".join(str(group.gap(later, earlier, validation)) for earlier, later in pairwise(METHODS))


def paper_errors() -> float:
    """By how many standard errors of a difference of two means the paper's Neumann-RBP exceeds its Poisson ARTBP."""
    (low, a), (high, b) = ((float(x) for x in PAPER["cora"][m].split(" ± ")) for m in METHODS[1:])
    return (high - low) / math.sqrt((a * a + b * b) / PAPER_SEEDS)


def table(found: Sorted) -> Table:
    groups = [group for group in found.on("cora") if any(group.of(method) for method in METHODS)]
    rows = tuple((label(m), PAPER["cora"][m], *(validated(group.of(m)) for group in groups)) for m in METHODS) if groups else ()
    return Table(
        "citation-g2",
        "G2, Cora: best validation accuracy in percent, mean ± standard deviation over seeds "
        f"({'; '.join(map(counts, groups))}).",
        ("method", "paper", *(TITLES[group.mode].lower() for group in groups)),
        rows,
    )
