"""Trials that depart from a mode: what each change of the corrected one is worth, and what many more passes bring."""

from __future__ import annotations

from collections.abc import Sequence

from steadygrad.report.hopfield.figures import constant_loss, network
from steadygrad.report.hopfield.tables import left, succeeded, wrong_pixels
from steadygrad.report.hopfield.trials import WHOLE, Sorted, Trial, Variant, middle
from steadygrad.report.section import Table
from steadygrad.report.style import look, ordered
from steadygrad.report.text import number, percent, short


def ablation(found: Sorted) -> Table | None:
    """What becomes of the corrected mode when one of its changes is taken back; None where nobody tried."""
    base = found.modes.get("corrected")
    variants = [variant for variant in found.variants if base is not None and variant.base.name == base.name]
    if base is None or not variants:
        return None
    methods = {trial.method for variant in variants for trial in variant.trials}
    rows = [("nothing: corrected", *ablated(base.of(method), method)) for method in ordered(list(methods)) if base.of(method)]
    for variant in variants:
        for method in ordered([trial.method for trial in variant.trials]):
            rows.append((taken_back(variant), *ablated([t for t in variant.trials if t.method == method], method)))
    if published := found.modes.get("as-published"):
        for method in ordered(list(methods)):
            if trials := published.of(method):
                rows.append((f"everything: as published, {published.setting['passes']} passes", *ablated(trials, method)))
    return Table(
        "What each change of the corrected mode is worth: taken back alone.",
        ("taken back", "method", "success", "final / initial loss", "pixel error", "ρ(J) at the end"),
        tuple(rows),
        "Loss and ρ(J): medians; pixel error: mean over trials and ten corruptions drawn after training.",
    )


def taken_back(variant: Variant) -> str:
    words = {"mode": "sigmoid read-out and cross-entropy → raw state and L1"}
    named = [words[key] for key in variant.changes if key in words]
    rest = {key: pair for key, pair in variant.changes.items() if key not in words}
    return "; ".join([*named, *([Variant(variant.base, rest, ()).words] if rest else [])])


def ablated(trials: Sequence[Trial], method: str) -> tuple[str, ...]:
    rho = short(middle(trials, lambda trial: trial.result["spectral_radius"]))
    return look(method).label, succeeded(trials), left(trials), f"{wrong_pixels(trials)} %", rho


def long(variants: Sequence[Variant]) -> Table:
    """Where trials with many more passes end, beside the loss of the best image that is the same for every input."""
    rows = [long_row(trial) for variant in variants for trial in variant.trials]
    return Table(
        "Training loss over many more passes than the other trials of the mode.",
        ("neurons", "method", "passes", "initial loss", "final loss", "lowest", "constant image", "pixel error", "ρ(J)"),
        tuple(rows),
    )


def long_row(trial: Trial) -> tuple[str, ...]:
    pixels, hidden = network(trial)
    method = look(trial.method).label + ("" if trial.method in WHOLE else f", K = {trial.config['steps']}")
    result = trial.result
    losses = (result["initial_loss"], result["final_loss"], min(trial.training), constant_loss(trial))
    return (
        f"{pixels} / {hidden:,} / {pixels}",
        method,
        number(len(trial.training)),
        *(f"{loss:.3f}" for loss in losses),
        percent(result["pixel_error"]),
        short(result["spectral_radius"]),
    )
