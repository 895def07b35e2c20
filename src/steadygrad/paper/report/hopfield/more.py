"""What else the Hopfield records show: energy, ρ(J), what each change of the corrected mode is worth, long runs, cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report import generic
from steadygrad.paper.report.hopfield.h1 import LOSS, PASSES
from steadygrad.paper.report.hopfield.h3 import unpacked
from steadygrad.paper.report.hopfield.trials import WHOLE, HopfieldTrial, K, Sorted, Variant, wrong_pixels
from steadygrad.paper.report.panels import DASHED, DOTTED, grid, legend, lines
from steadygrad.paper.report.section import Figure, Table
from steadygrad.paper.report.style import curve, look, ordered
from steadygrad.paper.report.text import number, percent, short
from steadygrad.paper.report.trial import TITLES, middle

ADJOINT = ("rbp-uniform", "rbp-zeros", "cg-rbp", "neumann-rbp", "auto")
"""The methods that solve the adjoint equation, hence have a residual of it."""
LONG = 3
"""A variant of so many times the passes of its mode gets a curve of its own."""
READOUTS = {"as-published": "state h, L1", "corrected": "φ(bh), cross-entropy"}
TAKEN_BACK = {"mode": "sigmoid read-out and cross-entropy → raw state and L1"}


def count(found: Sorted) -> int:
    return sum(len(setting.of(method)) for setting in found.all for method in setting.methods())


def numbers(found: Sorted) -> dict[str, Any]:
    rises = [(s.title, [trial.result["energy_largest_rise"] for trial in s.trials]) for s in found.all]
    peaks = [
        (
            s.title,
            middle(s.good(), lambda t: max((rho for rho in t.seen("spectral_radius") if rho is not None), default=None)),
            middle(s.good(), lambda t: t.result["spectral_radius"]),
            middle(s.good(), lambda t: t.result["norm"]),
        )
        for s in found.all
        if s.good()
    ]
    return {
        "energy": [(title, sum(rise == 0 for rise in of), len(of), percent(max(of))) for title, of in rises],
        "radius": [row for row in peaks if None not in row],
        "departures": sorted(
            ((percent(float(f"{wrong_pixels(v.trials):.3g}")), taken_back(v)) for v in ablations(found)), reverse=True
        ),
        "long": [trial.result["success"] for trial in long_trials(found)],
    }


def energy(found: Sorted) -> Figure:
    return Figure(
        "hopfield-energy",
        "The Lyapunov function along retrieval from corrupted images, mean over the ten: the part of its fall that is still to "
        "come. Records keep six digits of it, so that a curve ends near one part in a million.",
        "Falling curves, a panel a mode.",
        partial(draw_energy, found),
        count(found),
    )


def draw_energy(found: Sorted) -> Picture:
    picture, (axes,) = grid(1, len(found.all))
    for setting, axis in zip(found.all, axes, strict=True):
        lines(axis, setting.curves(remaining, first=0))
        axis.set(title=setting.title, xlabel="step t", yscale="log", xlim=(-0.5, 20.5), ylim=(1e-6, 2))
        axis.set_ylabel(r"$(E_t - E_T)\,/\,(E_0 - E_T)$")
    legend(picture, [axes])
    return picture


def remaining(trial: HopfieldTrial) -> list[float]:
    E = trial.result["energy"]
    fall = E[0] - E[-1]
    return [(value - E[-1]) / fall if fall else 0.0 for value in E]


def jacobian(found: Sorted) -> Figure:
    return Figure(
        "hopfield-jacobian",
        f"ρ(J) at the steady states of the clean images, and the residual of the adjoint equation, through training (K = {K}).",
        "Spectral radius and adjoint residual over passes, a row a mode.",
        partial(draw_jacobian, found),
        count(found),
    )


def draw_jacobian(found: Sorted) -> Picture:
    picture, rows = grid(len(found.all), 2)
    for setting, axes in zip(found.all, rows, strict=True):
        lines(axes[0], setting.curves(lambda trial: trial.seen("spectral_radius")))
        axes[0].set(title=f"{setting.title}: spectral radius", ylabel="ρ(J)", xlabel=PASSES, ylim=(0, None))
        residuals = setting.curves(lambda trial: trial.seen("adjoint_residual"))
        lines(axes[1], {method: found for method, found in residuals.items() if method in ADJOINT})
        axes[1].set(title=f"{setting.title}: adjoint residual", xlabel=PASSES, ylabel="‖b − (I − Jᵀ)z‖ / ‖b‖", yscale="log")
        axes[1].axhline(1, **DOTTED)
        axes[1].set_xlim(axes[0].get_xlim())
    legend(picture, rows, **{"as large as b": DOTTED})
    return picture


def ablations(found: Sorted) -> list[Variant]:
    return [variant for variant in found.variants if variant.base.mode == "corrected"]


def ablation(found: Sorted) -> Table | None:
    """What becomes of the corrected mode when one of its changes is taken back; None where nobody tried."""
    base, variants = found.corrected, ablations(found)
    if base is None or not variants:
        return None
    methods = ordered([trial.method for variant in variants for trial in variant.trials])
    groups: list[tuple[str, str, Sequence[HopfieldTrial]]] = [("nothing: corrected", m, base.of(m)) for m in methods]
    for variant in variants:
        of = ordered([trial.method for trial in variant.trials])
        groups += [(taken_back(variant), m, [t for t in variant.trials if t.method == m]) for m in of]
    if published := found.modes.get("as-published"):
        groups += [(f"everything: as published, {published.setting['passes']} passes", m, published.of(m)) for m in methods]
    rows = [
        (
            words,
            look(method).label,
            f"{sum(t.result['success'] for t in trials)} of {len(trials)}",
            short(middle(trials, lambda t: t.left)),
            f"{100 * wrong_pixels(trials):.2f} %",
            short(middle(trials, lambda t: t.result["spectral_radius"])),
        )
        for words, method, trials in groups
        if trials
    ]
    return Table(
        "hopfield-ablation",
        "What each change of the corrected mode is worth: taken back alone.",
        ("taken back", "method", "success", "final / initial loss", "pixel error", "ρ(J) at the end"),
        tuple(rows),
        "Loss and ρ(J): medians; pixel error: mean over trials and ten corruptions drawn after training.",
    )


def taken_back(variant: Variant) -> str:
    named = [TAKEN_BACK[key] for key in variant.changes if key in TAKEN_BACK]
    rest = {key: pair for key, pair in variant.changes.items() if key not in TAKEN_BACK}
    return "; ".join([*named, *([Variant(variant.base, rest, ()).words] if rest else [])])


def fidelity(found: Sorted) -> Table:
    """What single departures from the as-published setting do, beside the seeds of that setting."""
    rows: list[tuple[str, ...]] = []
    for variant in found.variants:
        if variant.base.mode != "as-published" or "passes" in variant.changes or "side" in variant.changes:
            continue
        for trial in variant.trials:
            others = variant.base.of(trial.method, trial.config["steps"])
            same = [one for one in others if one.seed == trial.seed]
            cells = [each([trial]) for each in (final_loss, wrong)]
            cells += [each(of) if of else "–" for of in (same, others) for each in (final_loss, wrong)]
            rows.append((variant.words, look(trial.method).label, *cells))
    heads = [f"{name}{who}" for who in ("", ", as it was", ", all seeds") for name in ("final loss", "% wrong")]
    return Table(
        "hopfield-fidelity-table",
        "As published, 30 passes, K = 20: one setting changed to what the paper or its code has, beside the same seed without "
        "the change and the range over all seeds.",
        ("changed", "method", *heads),
        tuple(rows),
        "J at the previous state, images in another order every pass, CG-RBP's ridge, and the leak of the text, h = 2Wφ(bh). "
        "A change that stays within the range over seeds says nothing.",
    )


def final_loss(trials: Sequence[HopfieldTrial]) -> str:
    return ranged([trial.result["final_loss"] for trial in trials], 3)


def wrong(trials: Sequence[HopfieldTrial]) -> str:
    return ranged([100 * trial.result["pixel_error_fresh"] for trial in trials], 1)


def ranged(values: Sequence[float], digits: int) -> str:
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def long_trials(found: Sorted) -> list[HopfieldTrial]:
    """Trials of many more passes than those of their mode."""
    far = [v for v in found.variants if v.trials[0].config["passes"] >= LONG * v.base.setting["passes"]]
    return [trial for group in (*found.longer, *far) for trial in group.trials]


def long(found: Sorted) -> Figure | None:
    trials = long_trials(found)
    if not trials:
        return None
    return Figure(
        "hopfield-long",
        "Training loss as published over many more passes, a panel a size of network.",
        "Training losses that come down to about that of a constant image, or stay above it.",
        partial(draw_long, trials),
        len(trials),
    )


def draw_long(trials: Sequence[HopfieldTrial]) -> Picture:
    networks = sorted({network(trial) for trial in trials}, reverse=True)
    picture, (axes,) = grid(1, len(networks))
    for shown, axis in zip(networks, axes, strict=True):
        these = [trial for trial in trials if network(trial) == shown]
        for trial in these:
            curve(axis, trial.method, range(1, len(trial.training) + 1), trial.training)
        axis.axhline(constant_loss(these[0]), **DOTTED)
        axis.axhline(0.5 * these[0].result["initial_loss"], **DASHED)
        pixels, hidden = shown
        axis.set(title=f"{pixels} / {hidden} / {pixels} neurons", xlabel=PASSES, ylabel=LOSS, yscale="log")
    legend(picture, [axes], **{"best constant image": DOTTED, "half the initial loss": DASHED})
    return picture


def network(trial: HopfieldTrial) -> tuple[int, int]:
    return trial.config["side"] ** 2, trial.config["hidden"]


def constant_loss(trial: HopfieldTrial) -> float:
    """The L1 loss of the image that is the pixelwise median of the ten: what a network without memory can reach."""
    share = unpacked(trial.result["images"]["clean"], trial.config["side"]).mean(axis=0)
    return float(np.minimum(share, 1 - share).mean())


def long_table(found: Sorted) -> Table:
    rows: list[tuple[str, ...]] = []
    for trial in long_trials(found):
        (pixels, hidden), result = network(trial), trial.result
        method = look(trial.method).label + ("" if trial.method in WHOLE else f", K = {trial.config['steps']}")
        losses = (result["initial_loss"], trial.training[0], result["final_loss"], constant_loss(trial))
        numbers = (*(f"{loss:.3f}" for loss in losses), percent(result["pixel_error"]), short(result["spectral_radius"]))
        passes = f"{number(len(trial.training))}, rate {trial.config['rate']:g}"
        rows.append((f"{pixels} / {hidden:,} / {pixels}", method, passes, trial.config["linearise"], *numbers))
    return Table(
        "hopfield-long-table",
        "Where trials of many more passes end.",
        (
            "neurons",
            "method",
            "passes",
            "J at",
            "initial loss",
            "first pass",
            "final loss",
            "constant image",
            "pixel error",
            "ρ(J)",
        ),
        tuple(rows),
        "J at: the last state, or the previous one as in the released code. Constant image: the loss of the best image that is "
        "the same for every input, the pixelwise median of the ten.",
    )


def cost(found: Sorted) -> Table:
    """What each method costs, K = 20."""
    measured = ("milliseconds_per_step",), ("training_seconds", "peak_mb")
    rows: list[tuple[str, ...]] = []
    for setting in found.all:
        for method in setting.methods():
            trials = setting.of(method)
            first, last = ([middle(trials, lambda t, k=k: t.measured.get(k)) for k in keys] for keys in measured)
            seen = [middle(trials, lambda t, k=k: t.latest(k)) for k in ("forward_steps", "adjoint_products", "adjoint_residual")]
            rows.append((setting.title, look(method).label, *map(short, (*first, *seen, *last))))
    batches = "; ".join(f"{setting.title.lower()} {setting.setting['batch']}" for setting in found.all)
    return Table(
        "hopfield-cost",
        f"What each method costs, K = {K}: medians over seeds.",
        ("mode", "method", "ms a step", "updates of F", "products with J", "adjoint residual", "training, s", "peak MB"),
        tuple(rows),
        f"A step is one batch of images ({batches}), forward and backward, on one core while another trial ran on the other. "
        "Updates, products and residual are those of the last step; the unrolled methods solve no adjoint equation. Peak memory "
        "is that of the whole process, most of it the libraries. The machine was shared: a factor of two in time means little.",
    )


def settings(found: Sorted) -> Table:
    """The settings of both modes side by side, longer runs too."""
    columns = (*found.all, *found.longer)
    names = [name for name in generic.keys([setting.setting for setting in columns]) if name != "mode"]
    rows = [(name, *(generic.cell(setting.setting.get(name)) for setting in columns)) for name in names]
    rows += [("seeds", *(str(setting.seeds) for setting in columns))]
    rows += [("K", *(", ".join(map(str, setting.counts)) or "–" for setting in columns))]
    rows += [("pixel and loss", *(READOUTS[setting.mode] for setting in columns))]
    heads = [TITLES[s.mode].lower() + ("" if s in found.all else f", {s.setting['passes']:,} passes") for s in columns]
    return Table("hopfield-settings", "Settings of the modes.", ("setting", *heads), tuple(rows))
