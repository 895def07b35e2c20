"""Accuracies beside the paper's, trials of other length, and settings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from steadygrad.report import generic
from steadygrad.report.citation.trials import NAMES, TITLES, Group, Sorted, Trial, in_order, label
from steadygrad.report.section import Table

PAPER = {
    "cora": {
        "baseline": "39.96 ± 3.4",
        "bptt": "24.48 ± 6.6",
        "tbptt": "46.55 ± 6.4",
        "artbp-uniform": "27.88 ± 3.2",
        "artbp-poisson": "42.22 ± 7.1",
        "rbp": "29.25 ± 3.3",
        "cg-rbp": "39.26 ± 6.5",
        "neumann-rbp": "46.63 ± 8.3",
    },
    "pubmed": {
        "baseline": "40.41 ± 3.1",
        "bptt": "47.05 ± 3.1",
        "tbptt": "53.41 ± 6.7",
        "rbp": "48.55 ± 3.4",
        "cg-rbp": "49.12 ± 2.9",
        "neumann-rbp": "53.56 ± 5.3",
    },
}
"""The paper's accuracies; those of ARTBP are validation accuracies by its own words."""
MODE_HEADS = {"as-published": "published: test", "corrected": "corrected: test"}
G2 = ("artbp-uniform", "artbp-poisson", "neumann-rbp")


def accuracy(found: Sorted, graph: str) -> Table:
    """G1: test accuracy, and the best validation accuracy beside it, in both modes and in the paper."""
    groups = found.on(graph)
    rows: list[tuple[str, ...]] = []
    for method in in_order([trial.method for group in groups for trial in group.trials]):
        cells = [f(group.of(method)) for group in groups for f in (tested, validated)]
        rows.append((label(method), PAPER.get(graph, {}).get(method, "–"), *cells))
    heads = [head for group in groups for head in (MODE_HEADS[group.mode], "validation")]
    return Table(
        f"G1, {NAMES[graph]}: accuracy in percent, mean ± standard deviation over seeds ({'; '.join(map(counts, groups))}).",
        ("method", "paper", *heads),
        tuple(rows),
        name=f"citation-g1-{graph}",
    )


def artbp(found: Sorted) -> Table | None:
    """G2: validation accuracies on Cora, as the paper gives them for ARTBP."""
    groups = [group for group in found.on("cora") if any(group.of(method) for method in G2)]
    if not groups:
        return None
    seeds = "; ".join(map(counts, groups))
    return Table(
        f"G2, Cora: best validation accuracy in percent, mean ± standard deviation over seeds ({seeds}).",
        ("method", "paper", *(TITLES[group.mode].lower() for group in groups)),
        tuple((label(method), PAPER["cora"][method], *(validated(group.of(method)) for group in groups)) for method in G2),
        name="citation-g2",
    )


def counts(group: Group) -> str:
    """How many seeds the methods of a group have: "as published: 10", or "as published: 1 to 3" while it is running."""
    found = sorted({len(group.of(method)) for method in group.methods()})
    return f"{TITLES[group.mode].lower()}: {found[0]}" + (f" to {found[-1]}" if len(found) > 1 else "")


def tested(trials: Sequence[Trial]) -> str:
    return spread([trial.test for trial in trials])


def validated(trials: Sequence[Trial]) -> str:
    return spread([trial.validation for trial in trials])


def spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def longer(found: Sorted) -> Table | None:
    """The trials of gradient methods with other settings."""
    rows: list[tuple[str, ...]] = []
    for group in found.groups:
        for trial in sorted(group.others, key=lambda trial: (trial.config["epochs"], trial.method, trial.seed)):
            changed = [key for key, value in group.setting.items() if trial.config.get(key) != value and key != "validate_every"]
            words = ", ".join(f"{key} {generic.cell(trial.config.get(key))}" for key in changed)
            ends = [f"{trial.result['training_loss'][place]:.3f}" for place in (0, -1)]
            best = str(trial.result["best_epoch"])
            rows.append(
                (group.title, words, label(trial.method), str(trial.seed), *ends, best, tested([trial]), validated([trial]))
            )
    if not rows:
        return None
    head = ("graph and mode", "setting", "method", "seed", "first loss", "last loss", "best epoch", "test", "validation")
    return Table("Trials with other settings than those of their mode.", head, tuple(rows))


ONLY_CORRECTED = ("length", "hidden", "dropout", "alpha", "prior")
"""Settings without effect as published."""


def settings(found: Sorted) -> Table:
    """The settings of every graph and mode side by side."""
    names = [name for name in generic.keys([group.setting for group in found.groups]) if name not in ("graph", "mode")]
    rows = [(name, *(set_to(group, name) for group in found.groups)) for name in names]
    rows.append(("seeds", *(str(len({trial.seed for trial in group.trials})) for group in found.groups)))
    note = (
        "Warm is off, since a warm start was measured (not in these records) and did not pay: the cold start z(x) is off by "
        "nothing in the slowest mode, in which (1 − α) h + α z = h has h = z, and the last epoch's state is not."
        if any("warm" in group.setting for group in found.groups)
        else ""
    )
    return Table("Settings of the modes.", ("setting", *(group.title for group in found.groups)), tuple(rows), note)


def set_to(group: Group, name: str) -> str:
    return "–" if group.mode == "as-published" and name in ONLY_CORRECTED else generic.cell(group.setting.get(name))
