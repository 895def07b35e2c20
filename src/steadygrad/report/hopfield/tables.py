"""The tables of the Hopfield section."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from steadygrad.report.hopfield.claims import GOOD, PAPER_RATES, loss_left, ratio
from steadygrad.report.hopfield.trials import (
    WHOLE,
    K,
    Mode,
    Sorted,
    Trial,
    largest,
    middle,
    pairs,
    start_error,
    steady_after,
)
from steadygrad.report.section import Table
from steadygrad.report.style import look, ordered
from steadygrad.report.text import number, percent, short

NO_BREAK = "\u00a0"
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5)


def success(found: Sorted) -> Table:
    """H2: success and pixel error beside the paper's rates, a row a method."""
    rows: list[tuple[str, ...]] = []
    for method in methods(found):
        paper = [PAPER_RATES[method].get(steps) if method in PAPER_RATES else None for steps in counts(found)]
        rates = "–" if None in paper else " / ".join(f"{100 * rate:.0f}" for rate in paper if rate is not None) + " %"
        won = [rates_of(mode, method) for mode in found.all]
        wrong = [each(mode, method, wrong_pixels) for mode in found.all]
        rows.append((look(method).label, *(cell.replace(" ", NO_BREAK) for cell in (rates, *won, *wrong))))
    heads = [f"{what}, {mode.title.lower()}" for what in ("success", "% wrong") for mode in found.all]
    passes = "; ".join(f"{mode.title.lower()}, {number(mode.setting['passes'])} passes" for mode in found.all)
    return Table(
        f"H2: success (a final training loss below half the initial one) and pixel error at {at_counts(found)}.",
        ("method", "success, paper", *heads),
        tuple(rows),
        f"Trials that succeed, of all trials ({passes}). % wrong: share of pixels that differ from the clean image after "
        "retrieval from corrupted images, mean over seeds and ten corruptions each, drawn after training. BPTT and "
        "auto have no K.",
        "hopfield-h2",
    )


def losses(found: Sorted) -> Table:
    """H2: how far the loss fell, or rose."""
    rows = [(look(method).label, *(each(mode, method, left) for mode in found.all)) for method in methods(found)]
    return Table(
        f"Final training loss relative to the initial one at {at_counts(found)}: median over seeds. Below 0.5 is success.",
        ("method", *(mode.title.lower() for mode in found.all)),
        tuple(rows),
    )


def methods(found: Sorted) -> list[str]:
    return ordered([trial.method for mode in found.all for trial in mode.trials])


def counts(found: Sorted) -> list[int]:
    return sorted({steps for mode in found.all for steps in mode.counts})


def at_counts(found: Sorted) -> str:
    return f"K = {' / '.join(map(str, counts(found)))}"


def each(mode: Mode, method: str, cell: Callable[[Sequence[Trial]], str]) -> str:
    """The cell at every K of the mode, parted by strokes."""
    tried = [mode.of(method, steps) for steps in ([0] if method in WHOLE else mode.counts)]
    return " / ".join(cell(trials) if trials else "–" for trials in tried) if any(tried) else "–"


def rates_of(mode: Mode, method: str) -> str:
    """ "0 of 6 / 6 of 6", or shorter where all have as many trials: "0 / 6 of 6"."""
    cells = each(mode, method, succeeded)
    ends = {cell.partition(" of ")[2] for cell in cells.split(" / ")}
    return cells if len(ends) > 1 else f"{' / '.join(cell.partition(' of ')[0] for cell in cells.split(' / '))} of {ends.pop()}"


def succeeded(trials: Sequence[Trial]) -> str:
    return f"{sum(trial.result['success'] for trial in trials)} of {len(trials)}"


def left(trials: Sequence[Trial]) -> str:
    return short(statistics.median(loss_left(trial) for trial in trials))


def wrong_pixels(trials: Sequence[Trial]) -> str:
    return f"{100 * statistics.fmean(trial.result['pixel_error_fresh'] for trial in trials):.2f}"


def start(found: Sorted) -> Table:
    """H2, why: what K steps leave of RBP's start, from BPTT's ρ and b, against the residual that RBP had."""
    rows: list[tuple[str, ...]] = []
    for mode in found.all:
        exact = mode.of("bptt") or mode.of("neumann-rbp")
        for steps in mode.counts:
            if exact and (trials := mode.of("rbp", steps)):
                rows.append((mode.title, str(steps), *start_cells(mode, exact, trials, steps)))
    return Table(
        "What K steps should leave of RBP's random start z₀, the residual that was measured, and how training ended.",
        ("mode", "K", "ρ(J)", "‖b‖", "ρᴷ‖z₀‖/‖b‖", "residual, RBP", "residual, z₀ = 0", "loss, RBP", "loss, z₀ = 0"),
        tuple(rows),
        "ρ(J) and b = ∂L/∂h: of BPTT's trials, at the validated pass at which ρᴷ‖z₀‖/‖b‖ is largest. Residual "
        "‖b − (I − Jᵀ)z‖/‖b‖: the largest of RBP's validated passes, on the network that RBP itself has made by then. Loss: "
        "final, relative to BPTT's from the same seed. Medians over seeds.",
        "hopfield-h2-start",
    )


def start_cells(mode: Mode, exact: list[Trial], trials: list[Trial], steps: int) -> tuple[str, ...]:
    zeros = mode.of("rbp-zeros", steps)
    return (
        short(middle(exact, lambda trial: worst_place(trial, steps)[0])),
        short(middle(exact, lambda trial: worst_place(trial, steps)[1])),
        short(middle(exact, lambda trial: start_error(trial, steps))),
        short(middle(trials, residual)),
        short(middle(zeros, residual)),
        short(ends(mode, "rbp", steps)),
        short(ends(mode, "rbp-zeros", steps)),
    )


def worst_place(trial: Trial, steps: int) -> tuple[float, float]:
    """ρ(J) and ‖b‖ at the validated pass at which ρᴷ/‖b‖ is largest."""
    seen = [
        (rho, b) for rho, b in zip(trial.seen("spectral_radius"), trial.seen("cotangent"), strict=True) if rho is not None and b
    ]
    return max(seen, key=lambda pair: pair[0] ** steps / pair[1], default=(math.nan, math.nan))


def residual(trial: Trial) -> float | None:
    return largest(trial.seen("adjoint_residual"))


def ends(mode: Mode, method: str, steps: int) -> float | None:
    """The final training loss relative to BPTT's from the same seed, in the middle of the seeds."""
    found = [ratio(trial.result["final_loss"], exact.result["final_loss"]) for trial, exact in pairs(mode, method, steps)]
    return statistics.median(found) if found else None


def steady(found: Sorted) -> Table:
    """H4: from which step on the state moves less than a tolerance."""
    rows: list[tuple[str, ...]] = []
    for mode in found.all:
        trials = [trial for method in GOOD for trial in mode.of(method)]
        for key, words in (("difference_clean", "clean"), ("difference", "corrupted")):
            if trials:
                ways = [trial.result[key]["relative"] for trial in trials]
                rows.append((mode.title, words, *(steps_below(ways, tolerance) for tolerance in TOLERANCES)))
    return Table(
        "H4: the step from which on the state moves by less than a share of its norm a step.",
        ("mode", "input", *(f"below {percent(tolerance)}" for tolerance in TOLERANCES)),
        tuple(rows),
        f"Trained networks of {', '.join(look(m).label for m in GOOD)} with K = {K}; in each trial the slowest of the ten "
        "images; the range over trials. The paper names no tolerance; the verdict takes 1 % and clean input, from which the "
        "network learns.",
        "hopfield-h4-steps",
    )


def steps_below(ways: Sequence[Sequence[float]], tolerance: float) -> str:
    found = [steady_after(way, tolerance) for way in ways]
    inside = [step for step in found if step is not None]
    if not inside:
        return f"> {len(ways[0])}"
    low, high = str(min(inside)), str(max(inside)) if len(inside) == len(found) else f"> {len(ways[0])}"
    return low if low == high else f"{low} to {high}"
