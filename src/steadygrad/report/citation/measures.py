"""What was measured besides accuracy, a table a graph and mode: the diagnosis of the trained networks, and the cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steadygrad.report.citation.trials import Group, Trial, label, middle
from steadygrad.report.section import Table
from steadygrad.report.text import short


def diagnosis(group: Group) -> Table:
    """Difference norm in both scalings, ρ(J), adjoint residual and the verdict, a row a method."""
    trials = [trial for method in group.gradients() for trial in group.of(method)]
    first = middle(trials, lambda trial: trial.result.get("spectral_radius_initial"))
    return Table(
        f"{group.title}: the trained networks" + ("." if first is None else f"; before training ρ(J) = {short(first)}."),
        ("method", "last step", "the paper's", "ρ(J)", "‖J‖₂", "σ_min(I−J)", "residual", "verdict"),
        tuple((label(method), *diagnosed(group.of(method))) for method in group.gradients()),
        name=f"citation-g3-diagnosis-{group.graph}-{group.mode}",
    )


def diagnosed(trials: Sequence[Trial]) -> tuple[str, ...]:
    found = next((trial.result["diagnosis"] for trial in trials if trial.result.get("diagnosis")), None)
    return (
        short(middle(trials, lambda trial: trial.last("difference_relative"))),
        short(middle(trials, lambda trial: trial.last("difference_scaled"))),
        short(middle(trials, lambda trial: trial.result.get("spectral_radius"))),
        bound(found, "norm", "≥"),
        bound(found, "min_singular_value", "≤"),
        short(middle(trials, lambda trial: trial.last("adjoint_residual"))),
        "–" if found is None else "trust" if found["trustworthy"] else ", ".join(map(tied, found["findings"])),
    )


def tied(finding: str) -> str:
    """No line breaks within a finding, so that the column does not get narrower than one."""
    return finding.replace(" ", "\u00a0")


def bound(found: dict[str, Any] | None, name: str, sign: str) -> str:
    if found is None:
        return "–"
    return f"{sign} {short(found[name])}" if name in found["not_settled"] else short(found[name])


def cost(group: Group) -> Table:
    """What each method costs, per epoch."""
    methods = [method for method in group.methods() if method != "baseline"]
    return Table(
        f"{group.title}: what each method costs, medians over seeds.",
        ("method", "F an epoch", "products", "ms an epoch", "MB an epoch", "training, s", "peak MB"),
        tuple((label(method), *costs(group.of(method))) for method in methods),
    )


def costs(trials: Sequence[Trial]) -> tuple[str, ...]:
    return (
        short(middle(trials, lambda trial: per_epoch(trial, "evaluations"))),
        short(middle(trials, lambda trial: per_epoch(trial, "products"))),
        short(middle(trials, lambda trial: trial.measured.get("milliseconds_per_epoch"))),
        short(middle(trials, lambda trial: trial.measured.get("epoch_mb"))),
        short(middle(trials, lambda trial: trial.measured.get("training_seconds"))),
        short(middle(trials, lambda trial: trial.measured.get("peak_mb"))),
    )


def per_epoch(trial: Trial, name: str) -> float | None:
    done = len(trial.result["training_loss"])
    return trial.result[name] / done if done and trial.result[name] else None
