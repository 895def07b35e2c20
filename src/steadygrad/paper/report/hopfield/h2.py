"""H2: the share of trials that end below half the initial training loss, at K = 10 / 20 / 30; and why RBP fails."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hopfield.trials import (
    WHOLE,
    HopfieldTrial,
    Setting,
    Sorted,
    left_of_start,
    start_error,
    wrong_pixels,
)
from steadygrad.paper.report.panels import DOTTED, grid, legend
from steadygrad.paper.report.section import Figure, Finding, Part, Table, judged
from steadygrad.paper.report.style import look, ordered
from steadygrad.paper.report.text import NO_BREAK, short, strokes
from steadygrad.paper.report.trial import largest, middle, ratio
from steadygrad.paper.report.verdicts import Outcome

PAPER = {
    "tbptt": {10: 1.0, 20: 1.0, 30: 1.0},
    "rbp-uniform": {10: 0.01, 20: 0.04, 30: 0.99},
    "cg-rbp": {10: 1.0, 20: 1.0, 30: 1.0},
    "neumann-rbp": {10: 1.0, 20: 1.0, 30: 1.0},
}
"""The paper's success rates, method and K."""
HALF = 0.5
COUNTS = {10: ("o", "#D55E00"), 20: ("^", "#0072B2"), 30: ("s", "#000000")}


def strict(trial: HopfieldTrial) -> bool:
    """The initial loss is that before any update."""
    return bool(trial.result["success"])


def overshot(trial: HopfieldTrial) -> bool:
    """The initial loss is the mean over the first pass, in which Adam's first steps overshoot."""
    first, last = trial.training[0], trial.training[-1]
    return math.isfinite(last) and last < HALF * first


READINGS: dict[str, Callable[[HopfieldTrial], bool]] = {"before any update": strict, "of the first pass": overshot}


def parts(found: Sorted) -> list[Part]:
    published, fixed = found.judged(lambda setting: agrees(setting, strict))
    text = "Trials that end below half the initial loss at K = 10 / 20 / 30: all but RBP always, RBP from K = 30 on"
    ours, why = None, "No setting has TBPTT, CG-RBP, Neumann-RBP and RBP at every K."
    if published is not None:
        words = "; ".join(f"{name}: {rates_words(published, success)}" for name, success in READINGS.items())
        outcomes = tuple(agrees(published, success) for success in READINGS.values())
        ours = Finding(outcomes, words, published.seeds, published.length)
        first = statistics.median(trial.training[0] for trial in published.of("bptt") or published.trials)
        before = statistics.median(trial.result["initial_loss"] for trial in published.trials)
        why = f"“Initial” may be before any update ({before:.2f}) or the first pass ({first:.2f}): Adam overshoots."
    corrected = Finding(agrees(fixed, strict), rates_words(fixed, strict), fixed.seeds) if fixed else None
    return [judged("H2", text, "100 / 100 / 100 %; RBP 1 / 4 / 99 %", ours, corrected, why)]


def rates(setting: Setting, success: Callable[[HopfieldTrial], bool]) -> dict[str, list[float]]:
    """Success rates, method by K; empty where one is missing."""
    found: dict[str, list[float]] = {}
    for method, published in PAPER.items():
        for steps in published:
            if not (trials := setting.of(method, steps)):
                return {}
            found.setdefault(method, []).append(statistics.fmean(success(trial) for trial in trials))
    return found


def agrees(setting: Setting, success: Callable[[HopfieldTrial], bool]) -> Outcome:
    """All but RBP always succeed, and RBP is on the paper's side of 50 % at every K."""
    found = rates(setting, success)
    if not found:
        return Outcome.MISSING
    sides = [
        (ours > HALF) == (paper > HALF) for ours, paper in zip(found["rbp-uniform"], PAPER["rbp-uniform"].values(), strict=True)
    ]
    return Outcome.of(all(rate == 1 for m, row in found.items() if m != "rbp-uniform" for rate in row) and all(sides))


def rates_words(setting: Setting, success: Callable[[HopfieldTrial], bool]) -> str:
    found = rates(setting, success)
    others = [rate for method, row in found.items() if method != "rbp-uniform" for rate in row]
    alike = f"{100 * others[0]:.3g} %" if len(set(others)) == 1 else f"{100 * min(others):.3g} to {100 * max(others):.3g} %"
    return f"{alike}, RBP {' / '.join(f'{100 * rate:.3g}' for rate in found['rbp-uniform'])} %"


def numbers(found: Sorted) -> dict[str, Any]:
    tried = [(setting, steps) for setting in found.all for steps in setting.counts]
    zeros = [value for setting, steps in tried if (value := ends(setting, "rbp-zeros", steps)) is not None]
    norm = found.all[0].trials[0].start if found.all else math.nan
    published = found.modes.get("as-published")
    return {
        "counts": published.counts if published else [],
        "ratios": [(look(m).label, first_ratios(published, m)) for m in PAPER if published.of(m)] if published else [],
        "norm": short(norm),
        "left": [
            (
                setting.title,
                strokes([middle(exact(setting), partial(start_error, steps=steps)) for steps in setting.counts]),
                setting.counts,
            )
            for setting in found.all
            if exact(setting) and setting.counts
        ],
        "zeros": (min(zeros), max(zeros)) if zeros else None,
        "longer": [(s.length, look(m).label, [short(t.left) for t in s.of(m)]) for s in found.longer for m in s.methods()],
        "readings": [(name, rates_words(found.modes["as-published"], success)) for name, success in READINGS.items()]
        if "as-published" in found.modes and rates(found.modes["as-published"], strict)
        else [],
    }


def first_ratios(setting: Setting, method: str) -> list[str]:
    """The final training loss over that of the first pass, at every K: the range over seeds."""
    found = [[t.training[-1] / t.training[0] for t in setting.of(method, K)] for K in setting.counts]
    return [f"{min(of):.2g}–{max(of):.2g}" if of else "–" for of in found]


def exact(setting: Setting) -> list[HopfieldTrial]:
    return setting.of("bptt") or setting.of("neumann-rbp")


def success_table(found: Sorted) -> Table:
    """Success under both readings and pixel error beside the paper's rates, a row a method."""
    counts = sorted({steps for setting in found.all for steps in setting.counts})
    rows: list[tuple[str, ...]] = []
    for method in ordered([trial.method for setting in found.all for trial in setting.trials]):
        paper = [PAPER[method].get(steps) if method in PAPER else None for steps in counts]
        rates = "–" if None in paper else " / ".join(f"{100 * rate:.0f}" for rate in paper if rate is not None) + " %"
        cells = [each(s, method, partial(counted, success=success)) for s in found.all for success in READINGS.values()]
        cells += [each(s, method, lambda trials: f"{100 * wrong_pixels(trials):.2f}") for s in found.all]
        rows.append((look(method).label, *(cell.replace(" ", NO_BREAK) for cell in (rates, *map(joined, cells)))))
    heads = [f"{setting.title.lower()}, {name}" for setting in found.all for name in READINGS]
    heads += [f"% wrong, {setting.title.lower()}" for setting in found.all]
    lengths = "; ".join(f"{setting.title.lower()}: {setting.setting['passes']:,} passes" for setting in found.all)
    return Table(
        "hopfield-h2",
        "H2: trials that end below half the initial training loss, of all, and pixel error, at K = "
        f"{' / '.join(map(str, counts))}.",
        ("method", "paper", *heads),
        tuple(rows),
        f"Initial loss before any update, or the mean of the first pass ({lengths}). % wrong: share of pixels that differ from "
        "the clean image after retrieval from corrupted ones, mean over seeds and ten corruptions each, drawn after training. "
        "BPTT and auto have no K.",
    )


def each(setting: Setting, method: str, cell: Callable[[Sequence[HopfieldTrial]], str]) -> str:
    """The cell at every K of the mode, parted by strokes."""
    tried = [setting.of(method, steps) for steps in ([0] if method in WHOLE else setting.counts)]
    return " / ".join(cell(trials) if trials else "–" for trials in tried) if any(tried) else "–"


def counted(trials: Sequence[HopfieldTrial], success: Callable[[HopfieldTrial], bool]) -> str:
    return f"{sum(map(success, trials))} of {len(trials)}"


def joined(cells: str) -> str:
    """ "0 of 6 / 6 of 6", or shorter where all have as many trials: "0 / 6 of 6"."""
    ends = {cell.partition(" of ")[2] for cell in cells.split(" / ")}
    return (
        cells
        if len(ends) > 1 or "" in ends
        else f"{' / '.join(c.partition(' of ')[0] for c in cells.split(' / '))} of {ends.pop()}"
    )


def start_table(found: Sorted) -> Table:
    """Why: what K steps leave of RBP's start, from BPTT's ρ and b, against the residual that RBP had."""
    rows: list[tuple[str, ...]] = []
    for setting in found.all:
        for steps in setting.counts:
            if exact(setting) and (trials := setting.of("rbp-uniform", steps)):
                zeros = setting.of("rbp-zeros", steps)
                cells = [middle(exact(setting), lambda t, i=i, k=steps: worst_place(t, k)[i]) for i in (0, 1)]
                cells += [middle(exact(setting), partial(start_error, steps=steps))]
                cells += [middle(of, lambda t: largest(t.seen("adjoint_residual"))) for of in (trials, zeros)]
                cells += [ends(setting, method, steps) for method in ("rbp-uniform", "rbp-zeros")]
                rows.append((setting.title, str(steps), *map(short, cells)))
    return Table(
        "hopfield-h2-start",
        "What K steps should leave of RBP's random start z₀, the residual that was measured, and how training ended.",
        ("mode", "K", "ρ(J)", "‖b‖", "ρᴷ‖z₀‖/‖b‖", "residual, RBP", "residual, z₀ = 0", "loss, RBP", "loss, z₀ = 0"),
        tuple(rows),
        "ρ(J) and b = ∂L/∂h: of BPTT's trials, at the validated pass at which ρᴷ‖z₀‖/‖b‖ is largest. Residual "
        "‖b − (I − Jᵀ)z‖/‖b‖: the largest of RBP's validated passes. Loss: final, relative to BPTT's from the same seed. Medians "
        "over seeds.",
    )


def worst_place(trial: HopfieldTrial, steps: int) -> tuple[float, float]:
    """ρ(J) and ‖b‖ at the validated pass at which ρᴷ/‖b‖ is largest."""
    pairs = zip(trial.seen("spectral_radius"), trial.seen("cotangent"), strict=True)
    return max(
        ((r, b) for r, b in pairs if r is not None and b), key=lambda p: p[0] ** steps / p[1], default=(math.nan, math.nan)
    )


def ends(setting: Setting, method: str, steps: int) -> float | None:
    """The final training loss relative to BPTT's from the same seed, in the middle of the seeds."""
    found = [ratio(t.result["final_loss"], e.result["final_loss"]) or 0.0 for t, e in setting.pairs(method, steps)]
    return statistics.median(found) if found else None


def figure(found: Sorted) -> Figure:
    return Figure(
        "hopfield-h2-residual",
        "RBP's adjoint residual against ρᴷ‖z₀‖/‖b‖ at every validated pass of every RBP trial, with ρ(J) and b of that trial.",
        "Points along the diagonal, in the order of K: the larger K, the smaller both.",
        partial(draw, found),
        sum(len(setting.of("rbp-uniform", steps)) for setting in found.all for steps in setting.counts),
    )


def draw(found: Sorted) -> Picture:
    picture, (axes,) = grid(1, len(found.all))
    for setting, axis in zip(found.all, axes, strict=True):
        for steps in setting.counts:
            marker, colour = COUNTS.get(steps, ("D", "#5A5A5A"))
            pairs = [
                (expected, residual)
                for trial in setting.of("rbp-uniform", steps)
                for expected, residual in zip(left_of_start(trial, steps), trial.seen("adjoint_residual"), strict=True)
                if expected is not None and residual is not None and math.isfinite(residual)
            ]
            x, y = zip(*pairs, strict=True) if pairs else ((), ())
            axis.plot(x, y, linestyle="", marker=marker, color=colour, markersize=4, markeredgewidth=0, label=f"K = {steps}")
        axis.axline((1e-6, 1e-6), (1, 1), **DOTTED)
        axis.set(title=setting.title, xlabel="expected: ρᴷ‖z₀‖ / ‖b‖", ylabel="measured residual", xscale="log", yscale="log")
        axis.set(xlim=(1e-6, 1e3), ylim=(1e-6, 1e3))
    legend(picture, [axes], equal=DOTTED)
    return picture
