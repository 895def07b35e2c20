"""Cost of the citation experiment, also beside an exact gradient in little memory, and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steadygrad.paper.report import generic, style
from steadygrad.paper.report.citation.trials import CitationTrial, Group, Sorted, label
from steadygrad.paper.report.section import Table
from steadygrad.paper.report.text import short
from steadygrad.paper.report.trial import called, median, middle, seeds_of
from steadygrad.paper.report.verdicts import Gap

ONLY_CORRECTED = ("length", "hidden", "dropout", "alpha", "prior")
"""Settings without effect as published."""
SHOWN = ("evaluations", "cpu_ms", "time", "mb", "memory", "cosine", "error")
MEASURED = ("milliseconds_per_epoch", "epoch_mb", "training_seconds", "peak_mb")


def costs(found: Sorted) -> list[Table]:
    return [cost(group) for group in found.groups]


def cost(group: Group) -> Table:
    """What each method costs, per epoch."""
    methods = [method for method in group.methods() if method not in ("baseline", *style.CHECKPOINTED)]
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


def turns(found: Sorted) -> list[Table]:
    return [table for group in found.groups if (table := turns_of(group)).rows]


def turns_of(group: Group) -> Table:
    """One epoch by several methods in turns: what an exact gradient in little memory costs beside Neumann-RBP."""
    return Table(
        f"citation-exact-{group.graph}-{group.mode}",
        f"{group.title}: one epoch from the initial weights by each method in turns.",
        ("method", "calls of F", "CPU ms", "÷ BPTT's", "MB", "÷ BPTT's", "cosine", "rel. error", "accuracy − BPTT's", "seeds"),
        tuple(
            (label(method), *(short(one[key]) for key in SHOWN), *beside_exact(group, method))
            for method, one in in_turns(group).items()
        ),
        "CPU time of the fastest of five rounds while others used the machine; each round takes every method once. MB: tensors "
        "alive at the worst moment. Cosine and error: of the gradient, to BPTT's. Accuracy: on the test nodes after training, in "
        "points, mean and standard error over the seeds that both have.",
    )


def beside_exact(group: Group, method: str) -> tuple[str, str]:
    """By how much a method's test accuracy exceeds BPTT's, seed by seed, and over how many seeds."""
    gaps = group.gaps(method, "bptt", lambda trial: trial.test)
    mean = f"{sum(gaps) / len(gaps):+.1f}".replace("-", "−") if gaps else "–"
    return str(Gap.of(gaps) or mean), str(len(gaps))


def in_turns(group: Group) -> dict[str, dict[str, float]]:
    """What the trials measured of each method, medians; time and memory also relative to BPTT's in the same trial."""
    found = [trial.measured["turns"] for trial in group.trials if trial.measured.get("turns")]
    made: dict[str, dict[str, float]] = {}
    for method in found[0] if found else ():
        numbers = {key: median(one[method][key] for one in found) or 0.0 for key in found[0][method]}
        for name, key in (("time", "cpu_ms"), ("memory", "mb")):
            numbers[name] = median(one[method][key] / one["bptt"][key] for one in found) or 0.0
        made[called(method)] = numbers
    return made


def exact(found: Sorted) -> list[dict[str, Any]]:
    """The question that the paper could not ask, in numbers: each place with Neumann-RBP and BPTT in √(2T) and log₂ T states."""
    names = {"ours": "neumann-rbp", "root": "bptt-sqrt", "log": "bptt-log"}
    return [
        {"title": group.title, **{name: turns[method] for name, method in names.items()}, "gaps": same(group)}
        for group in found.groups
        if (turns := in_turns(group))
    ]


def same(group: Group) -> list[tuple[str, str, int]]:
    """How far the test accuracies of BPTT in less memory are from BPTT's, seed by seed, in points: the most."""
    gaps = {method: group.gaps(method, "bptt", lambda trial: trial.test) for method in style.CHECKPOINTED}
    return [(label(method), f"{max(map(abs, of)):.1f}", len(of)) for method, of in gaps.items() if of]


def settings(found: Sorted) -> Table:
    """The settings of every graph and mode side by side."""
    names = [name for name in generic.keys([group.setting for group in found.groups]) if name not in ("graph", "mode")]
    rows = [(name, *(set_to(group, name) for group in found.groups)) for name in names]
    rows.append(("seeds", *(str(seeds_of(group.trials)) for group in found.groups)))
    return Table("citation-settings", "Settings of the modes.", ("setting", *(g.title for g in found.groups)), tuple(rows))


def set_to(group: Group, name: str) -> str:
    return "–" if group.mode == "as-published" and name in ONLY_CORRECTED else generic.cell(group.setting.get(name))
