"""Cost and settings of the citation experiment."""

from __future__ import annotations

from collections.abc import Sequence

from steadygrad.paper.report import generic
from steadygrad.paper.report.citation.trials import CitationTrial, Group, Sorted, label
from steadygrad.paper.report.section import Table
from steadygrad.paper.report.text import short
from steadygrad.paper.report.trial import middle, seeds_of

ONLY_CORRECTED = ("length", "hidden", "dropout", "alpha", "prior")
"""Settings without effect as published."""
MEASURED = ("milliseconds_per_epoch", "epoch_mb", "training_seconds", "peak_mb")


def costs(found: Sorted) -> list[Table]:
    return [cost(group) for group in found.groups]


def cost(group: Group) -> Table:
    """What each method costs, per epoch."""
    methods = [method for method in group.methods() if method != "baseline"]
    return Table(
        f"citation-cost-{group.graph}-{group.mode}",
        f"{group.title}: what each method costs, medians over seeds.",
        ("method", "F an epoch", "products", "ms an epoch", "MB an epoch", "training, s", "peak MB"),
        tuple((label(method), *cost_of(group.of(method))) for method in methods),
    )


def cost_of(trials: Sequence[CitationTrial]) -> tuple[str, ...]:
    counted = [middle(trials, lambda t, k=k: per_epoch(t, k)) for k in ("evaluations", "products")]
    return tuple(map(short, (*counted, *(middle(trials, lambda t, k=k: t.measured.get(k)) for k in MEASURED))))


def per_epoch(trial: CitationTrial, name: str) -> float | None:
    done = len(trial.result["training_loss"])
    return trial.result[name] / done if done and trial.result[name] else None


def settings(found: Sorted) -> Table:
    """The settings of every graph and mode side by side."""
    names = [name for name in generic.keys([group.setting for group in found.groups]) if name not in ("graph", "mode")]
    rows = [(name, *(set_to(group, name) for group in found.groups)) for name in names]
    rows.append(("seeds", *(str(seeds_of(group.trials)) for group in found.groups)))
    return Table("citation-settings", "Settings of the modes.", ("setting", *(g.title for g in found.groups)), tuple(rows))


def set_to(group: Group, name: str) -> str:
    return "–" if group.mode == "as-published" and name in ONLY_CORRECTED else generic.cell(group.setting.get(name))
