"""The tables of the citation section."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from steadygrad.report import generic
from steadygrad.report.citation.claims import PAPER
from steadygrad.report.citation.trials import NAMES, TITLES, Group, Sorted, Trial, in_order, label, middle
from steadygrad.report.section import Table
from steadygrad.report.text import number


def accuracy(found: Sorted, graph: str) -> Table:
    """G1 and G2: test accuracy, and the best validation accuracy beside it, in both modes and in the paper."""
    groups = found.on(graph)
    rows: list[tuple[str, ...]] = []
    for method in in_order([trial.method for group in groups for trial in group.trials]):
        cells = [f(group.of(method)) for group in groups for f in (tested, validated, seeds)]
        rows.append((label(method), PAPER.get(graph, {}).get(method, "–"), *cells))
    heads = [head for group in groups for head in (f"test, {mode(group)}", f"validation, {mode(group)}", "seeds")]
    return Table(
        f"G1 and G2, {NAMES[graph]}: accuracy in percent, mean ± standard deviation over seeds.",
        ("method", "paper", *heads),
        tuple(rows),
        "Test: accuracy on the test nodes at the epoch of the best validation accuracy. Validation: that best accuracy itself, "
        "which the released code most likely reports, since it has no test split; the paper says so of ARTBP. The seed fixes "
        "the split for all methods. APPNP has the corrected mode's features and settings; GCN its usual ones; neither was tuned "
        "as long as the diffusion.",
        f"citation-g1-{graph}",
    )


def mode(group: Group) -> str:
    return TITLES[group.mode].lower()


def tested(trials: Sequence[Trial]) -> str:
    return spread([trial.test for trial in trials])


def validated(trials: Sequence[Trial]) -> str:
    return spread([trial.validation for trial in trials])


def seeds(trials: Sequence[Trial]) -> str:
    return str(len(trials)) if trials else "–"


def spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def cost(found: Sorted) -> Table:
    """What each method costs, per epoch."""
    rows: list[tuple[str, ...]] = []
    for group in found.groups:
        for method in group.methods():
            trials = group.of(method)
            if method != "baseline":
                rows.append((NAMES[group.graph], TITLES[group.mode], label(method), *costs(trials)))
    return Table(
        "What each method costs: medians over seeds.",
        ("graph", "mode", "method", "F an epoch", "products", "ms an epoch", "MB an epoch", "training, s", "peak MB"),
        tuple(rows),
        "An epoch is one forward and backward pass over the whole graph on one core, without validation. F: its evaluations; "
        "products with J or Jᵀ, the certificate's own included (the unrolled methods have none: their backward pass is part of "
        "the time). MB an epoch: tensors alive at the worst moment, in diagnosed trials. Peak MB: the whole process, libraries "
        "and validation included. The machine was shared: a factor of two in time means little.",
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


def diagnosis(found: Sorted) -> Table:
    """Relative difference norm, ρ(J), adjoint residual and the verdict, a row a method."""
    rows: list[tuple[str, ...]] = []
    for group in found.groups:
        for method in group.gradients():
            rows.append((NAMES[group.graph], TITLES[group.mode], label(method), *diagnosed(group.of(method))))
    return Table(
        "What the diagnosis says of the trained networks.",
        ("graph", "mode", "method", "last step", "ρ(J), first", "ρ(J)", "‖J‖₂", "σ_min(I−J)", "adjoint residual", "verdict"),
        tuple(rows),
        "Last step: ‖h_T − h_{T−1}‖ / ‖h_T‖ after training. ρ(J), first: at the initial weights. Adjoint residual: "
        "‖b − (I − Jᵀ)z‖ / ‖b‖ at the last validated epoch that was trained on. Medians over seeds; ρ(J) first, ‖J‖₂, σ_min and "
        "the verdict are of seed 0, by sg.diagnose. σ_min and ‖J‖₂ that did not settle are bounds, marked ≤ and ≥.",
        "citation-g3-diagnosis",
    )


def diagnosed(trials: Sequence[Trial]) -> tuple[str, ...]:
    found = next((trial.result["diagnosis"] for trial in trials if trial.result.get("diagnosis")), None)
    return (
        short(middle(trials, lambda trial: trial.last("difference_relative"))),
        short(middle(trials, lambda trial: trial.result.get("spectral_radius_initial"))),
        short(middle(trials, lambda trial: trial.result.get("spectral_radius"))),
        bound(found, "norm", "≥"),
        bound(found, "min_singular_value", "≤"),
        short(middle(trials, lambda trial: trial.last("adjoint_residual"))),
        "–" if found is None else "trust" if found["trustworthy"] else ", ".join(found["findings"]),
    )


def bound(found: dict[str, Any] | None, name: str, sign: str) -> str:
    if found is None:
        return "–"
    return f"{sign} {short(found[name])}" if name in found["not_settled"] else short(found[name])


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
    return Table("Settings of the modes.", ("setting", *(group.title for group in found.groups)), tuple(rows))


def set_to(group: Group, name: str) -> str:
    return "–" if group.mode == "as-published" and name in ONLY_CORRECTED else generic.cell(group.setting.get(name))


def short(value: float | None) -> str:
    """Three significant digits."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{value:.1e}" if value and not 1e-3 <= abs(value) < 1e5 else number(float(f"{value:.3g}"))
