"""P1 to P4: the series is BPTT, truncated BPTT and RBP from zero, and how far K terms are off."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.panels import BANDS, DASHED, grid, legend, line
from steadygrad.paper.report.section import Figure, Part, Table
from steadygrad.paper.report.text import short
from steadygrad.paper.report.theory.trials import Sorted
from steadygrad.paper.report.trial import Trial, middle
from steadygrad.paper.report.verdicts import Outcome

EQUAL = 1e-11
"""Two gradients in float64 are equal that differ by less, relative to their norm: rounding is 1e-16 a step, and grows."""
SLACK = 1e-9
"""By which a measured norm may exceed its bound: records keep six digits."""
ERRORS = {"neumann": "neumann-rbp", "uniform": "rbp-uniform", "cg": "cg-rbp"}


def parts(found: Sorted) -> list[Part]:
    claims: list[tuple[str, str, Callable[[Trial], float], str]] = [
        ("P1", "Full Neumann-RBP is BPTT", lambda t: t.result["p1"], "600 terms and 600 steps."),
        ("P2", "K terms are truncated BPTT", lambda t: max(t.result["p2"]), "Counted: K + 1 terms are K + 1 steps."),
        ("P4", "RBP from zero is the series", lambda t: max(t.result["p4"]), "K + 1 steps; from U[0, 1] it is not."),
    ]
    made: list[Part] = []
    for name, text, measure, why in claims:
        worst = max(map(measure, found.series), default=math.nan)
        outcome, words = known(found, worst < EQUAL), f"differ by at most {worst:.0e} of their norm"
        made.append(found.proved(name, text, "equal", outcome, words, why))
    holds = [over(trial) <= SLACK for trial in found.series]
    text, words = "The error of K terms is at most ‖(I − J)⁻¹‖ ‖J‖ᴷ⁺¹", f"within it in {sum(holds)} of {len(holds)} maps"
    why = "Always true, but empty where ‖J‖ ≥ 1: ρ(J) decides, not the norm."
    made.append(found.proved("P3", text, "a bound", known(found, all(holds)), words, why))
    return sorted(made, key=lambda part: part.id)


def known(found: Sorted, holds: bool) -> Outcome:
    return Outcome.of(holds if found.series else None)


def over(trial: Trial) -> float:
    """By how much the measured error exceeds the bound, relative to it; negative where it does not."""
    pairs = zip(trial.result["p3"], trial.result["bound"], strict=True)
    floor = 1e-12 * trial.result["bound"][0]  # the error cannot be measured below rounding
    return max((error - bound) / bound for error, bound in pairs if bound > floor)


def equality(found: Sorted) -> list[tuple[str, str]]:
    """σ_min(I − J) beside 1 − σ_max(J), which the paper takes for equal, at each radius."""
    keys = ("min_singular_value", "one_minus_norm")
    rows = [[short(middle(found.at(r), lambda t, k=k: t.result[k])) for k in keys] for r in found.radii]
    return [(smallest, bound) for smallest, bound in rows]


def figure(found: Sorted) -> Figure | None:
    if not found.series:
        return None
    return Figure(
        "theory-p",
        "Above: the error of the gradient after K steps or terms, at three spectral radii of W. Below: P3, the norm of the "
        f"error of the series and its bound. {BANDS}",
        "Falling lines; the bound falls only where the norm of J is below one.",
        partial(draw, found),
        len(found.series),
    )


def draw(found: Sorted) -> Picture:
    picture, rows = grid(2, len(found.radii), 2.1)
    for radius, upper, lower in zip(found.radii, *rows, strict=True):
        trials = found.at(radius)
        for place, (key, method) in enumerate(ERRORS.items()):
            line(upper, method, [(t.result["K"], t.result[key]) for t in trials], place, len(ERRORS))
        line(lower, "neumann-rbp", [(t.result["K"], t.result["p3"]) for t in trials], 0, 1)
        bounds(lower, trials)
        rho = middle(trials, lambda t: t.result["spectral_radius"])
        upper.set(title=f"ρ(J) = {short(rho)}", yscale="log", ylim=(1e-16, 30))
        lower.set(yscale="log", xlabel="K", ylim=(1e-12, 1e6))
    rows[0][0].set_ylabel("relative error")
    rows[1][0].set_ylabel("norm of the error")
    legend(picture, rows, **{"bound of P3": DASHED})
    return picture


def bounds(axis: Axes, trials: list[Trial]) -> None:
    for trial in trials:
        axis.plot(trial.result["K"], trial.result["bound"], **DASHED)


def table(found: Sorted) -> Table:
    rows: list[tuple[str, ...]] = []
    for radius in found.radii:
        trials = found.at(radius)
        spectral = [middle(trials, lambda t, k=k: t.result[k]) for k in ("spectral_radius", "norm", "min_singular_value")]
        worst = [max(t.result["p1"] for t in trials), *(max(max(t.result[k]) for t in trials) for k in ("p2", "p4"))]
        last = [middle(trials, lambda t, k=k: t.result[k][-1]) for k in ERRORS]
        rows.append((str(radius), *map(short, (*spectral, *worst, *last)), str(len(trials))))
    K = found.series[0].result["K"][-1] if found.series else 0
    head = ("ρ(W)", "ρ(J)", "‖J‖₂", "σ_min(I−J)", "P1", "P2", "P4", "Neumann", "RBP, U[0, 1]", "CG", "maps")
    return Table(
        "theory-p-table",
        "P1, P2, P4: the largest relative difference of the two gradients over all maps and K; then the error of each method "
        f"at K = {K}, median.",
        head,
        tuple(rows),
    )
