"""The sentences of the Hopfield section, with their numbers from the records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from steadygrad.report.hopfield import departures, figures, tables
from steadygrad.report.hopfield.claims import GOOD, WITHIN, apart, within_words
from steadygrad.report.hopfield.trials import Mode, Sorted, Trial, Variant, middle, pairs, start_error
from steadygrad.report.style import look
from steadygrad.report.text import percent, plural

ABOUT = (
    "A continuous Hopfield network stores ten MNIST digits in black and white and retrieves them after half of their set pixels "
    "were cleared. Observed neurons are clamped to the image, hidden and output neurons follow h ← W φ(b h) to a steady state, "
    "and the methods differ only in how they get the gradient there. As published: the settings of the paper's released code, "
    "with correct derivatives; the pixel is the raw state, the loss its L1 distance to the image, b = 0.5, one image a step. "
    "Corrected: the pixel is φ(b h), as the paper's text has it, the loss cross-entropy, b = 3, all ten images a step, and the "
    "learning rate warms up and decays, the same for all methods. The loss that is shown is the mean L1 distance in both modes. "
    "The released code scores retrieval against the corrupted image, we score against the clean one; its CG-RBP has a wrong "
    "Jacobian-vector product, ours is tested against dense algebra."
)


def curves(found: Sorted) -> str:
    """H1: how far each method strays from BPTT."""
    parts = [f"{mode.title.lower()} {text}" for mode in found.all if (text := strayed(mode))]
    if not parts:
        return "No method has a trial beside BPTT from the same seed."
    return f"The largest distance of a curve from BPTT's, relative to it, over all passes and seeds: {'; '.join(parts)}."


def strayed(mode: Mode) -> str:
    gaps = {m: max(apart(*pair) for pair in pairs(mode, m)) for m in mode.methods() if m != "bptt" and pairs(mode, m)}
    if not gaps:
        return ""
    initial, final = (statistics.median(trial.result[key] for trial in mode.of("bptt")) for key in ("initial_loss", "final_loss"))
    shown = ", ".join(f"{within_words(gap).removeprefix('within ')} ({look(method).label})" for method, gap in gaps.items())
    return f"{shown}, where BPTT goes from {initial:.3f} to {final:.4f}"


def start(found: Sorted) -> str:
    """Trap 1: it is the scale of z₀."""
    text = (
        "Original RBP takes K steps z ← Jᵀz + b from z₀ drawn uniformly on [0, 1], whose norm "
        f"({tables.short(found.all[0].trials[0].start)} here) has nothing to do with that of the cotangent b. After them about "
        "ρ(J)ᴷ‖z₀‖ of it is left, so where ρᴷ‖z₀‖/‖b‖ exceeds 1 the gradient is mostly noise."
    )
    for mode in found.all:
        exact = mode.of("bptt") or mode.of("neumann-rbp")
        left = {steps: middle(exact, lambda trial, steps=steps: start_error(trial, steps)) for steps in mode.counts}
        shown = " / ".join(tables.short(value) for value in left.values() if value is not None)
        if shown:
            text += f" {mode.title}, that is {shown} at its worst in training, at K = {' / '.join(map(str, left))}."
    return text + zeros(found)


def zeros(found: Sorted) -> str:
    tried = [(mode, steps) for mode in found.all for steps in mode.counts]
    ratios = [value for mode, steps in tried if (value := tables.ends(mode, "rbp-zeros", steps)) is not None]
    if not ratios:
        return ""
    return (
        " The start is to blame, not the method: from z₀ = 0, K steps of RBP are the K terms of Neumann-RBP with K − 1, and the "
        f"final loss is {' to '.join(sorted({f'{min(ratios):.3f}', f'{max(ratios):.3f}'}))} times BPTT's over every K and mode."
    )


def steady(found: Sorted) -> str:
    parts: list[str] = []
    for mode in found.all:
        trials = [trial for method in GOOD for trial in mode.of(method)]
        if trials and len(trials[0].result["difference"]["relative"]) >= WITHIN:
            moves = [[t.result[key]["relative"][WITHIN - 1] for t in trials] for key in ("difference_clean", "difference")]
            clean, corrupted = (percent(float(f"{statistics.median(values):.2g}")) for values in moves)
            parts.append(f"{mode.title}: {clean} with clean input, {corrupted} with corrupted input.")
    if not parts:
        return "No trial shows how the state moves."
    return (
        f"How far the slowest image's state moves in step {WITHIN}, relative to its norm, median over trials. {' '.join(parts)}"
    )


def energy(found: Sorted) -> str:
    parts: list[str] = []
    for mode in found.all:
        rises = [trial.result["energy_largest_rise"] for trial in mode.trials]
        falling = sum(rise == 0 for rise in rises)
        rest = "" if falling == len(rises) else f" (largest rise in a step: {percent(max(rises))} of the whole fall)"
        parts.append(f"{mode.title.lower()} {falling} of {len(rises)}{rest}")
    return (
        f"Trials in which the energy of every image falls in every step, from clean and from corrupted input: {', '.join(parts)}."
    )


def jacobian(found: Sorted) -> str:
    parts: list[str] = []
    for mode in found.all:
        trials = [trial for method in GOOD for trial in mode.of(method)]
        peak = middle(trials, lambda trial: max((rho for rho in trial.seen("spectral_radius") if rho is not None), default=None))
        end, norm = (middle(trials, lambda trial, key=key: trial.result[key]) for key in ("spectral_radius", "norm"))
        if peak is not None and end is not None and norm is not None:
            parts.append(f"{mode.title}, ρ(J) is {peak:.2f} at most and {end:.2f} at the end, where ‖J‖₂ = {norm:.2f}.")
    names = ", ".join(look(method).label for method in GOOD)
    text = " ".join(parts)
    return f"{text} (Medians over the trials of {names}.) The Neumann series needs ρ(J) < 1, not ‖J‖₂ < 1." if text else ""


def ablation(found: Sorted) -> str:
    """What each change is worth, the dearest first."""
    base = found.modes["corrected"]
    costs = [(pixel_error(v.trials), departures.taken_back(v)) for v in found.variants if v.base.name == base.name]
    shown = ", ".join(f"{percent(error)} ({change})" for error, change in sorted(costs, reverse=True))
    same = [trial for method in {t.method for v in found.variants for t in v.trials} for trial in base.of(method)]
    whole = f" instead of {percent(pixel_error(same))}" if same else ""
    return (
        f"The changes of the corrected mode taken back, one at a time. Pixels that are then wrong{whole}: {shown}. Why b matters "
        f"was not tested by itself; a likely reason is that with b = 0.5 a set pixel moves what its neuron sends from 0.5 to "
        f"{1 / (1 + math.exp(-0.5)):.2f} only, so that what all images have in common dominates."
    )


def pixel_error(trials: Sequence[Trial]) -> float:
    return float(f"{statistics.fmean(trial.result['pixel_error_fresh'] for trial in trials):.3g}")


def long(variants: Sequence[Variant]) -> str:
    trials = [trial for variant in variants for trial in variant.trials]
    won = [trial for trial in trials if trial.result["success"]]
    sizes = sorted({figures.network(trial)[0] for trial in won})
    which = f" ({' and '.join(f'{pixels} pixels' for pixels in sizes)})" if won else ""
    return (
        f"{len(won)} of {plural(len(trials), 'trial')} with many more passes end below half the initial loss{which}. The best "
        "constant image is the pixelwise median of the ten, which a network without memory can show for any input."
    )
