"""A1: penalties that make I − J invertible, and what descending them does to the map and to the gradient."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.panels import BANDS, grid, legend, stacked
from steadygrad.paper.report.section import Figure, Part, Table
from steadygrad.paper.report.style import Look
from steadygrad.paper.report.text import short
from steadygrad.paper.report.theory.trials import Sorted
from steadygrad.paper.report.trial import middle
from steadygrad.paper.report.verdicts import Outcome

PENALTIES = {
    "column-l1": Look("column ℓ₁", "#0072B2", "-", "P"),
    "gershgorin": Look("Gershgorin", "#D55E00", (0, (1.2, 1.4)), "^"),
    "lanczos": Look("λ_min by Lanczos", "#009E73", (0, (7, 2)), "D"),
    "frobenius": Look("Frobenius (ours)", "#CC79A7", (0, (4, 1.5, 1, 1.5)), "v"),
    "spectral": Look("spectral norm (ours)", "#E69F00", (0, (5, 2)), "s"),
}
PAPER = ("column-l1", "gershgorin", "lanczos")
SHOWN = {"min_singular_value": "σ_min(I − J)", "spectral_radius": "ρ(J)", "adjoint_error": "error of the adjoint, K = 20"}
RIGHT = 1e-3
"""The adjoint of 20 terms counts as right whose relative error is below."""


def parts(found: Sorted) -> list[Part]:
    tried = [name for name in PAPER if found.of(name)]
    smallest = [trial.result["min_singular_value"] for name in tried for trial in found.of(name)]
    rises = [values[-1] > values[0] for values in smallest]
    right = [name for name in tried if all(t.result["adjoint_error"][-1] < RIGHT for t in found.of(name))]
    why = f"Afterwards 20 terms give the adjoint with {' and '.join(PENALTIES[name].label for name in right) or 'none'}"
    why += "." if "lanczos" in right else "; λ_min alone makes I − J invertible, not the map steady."
    words = f"σ_min rises in {sum(rises)} of {len(rises)} descents"
    outcome = Outcome.of(all(rises) if len(tried) == len(PAPER) else None)
    return [found.proved("A1", "Three penalties keep I − J invertible", "no numbers", outcome, words, why)]


def figure(found: Sorted) -> Figure | None:
    if not found.penalties:
        return None
    return Figure(
        "theory-a1",
        "A1: descending each penalty alone from a map with ρ(W) = 1.3 that does not settle. Left to right: the smallest singular "
        f"value of I − J, the spectral radius, and how wrong 20 terms of the adjoint series are. {BANDS}",
        "Lines over the steps of descent; the ends are in the table.",
        partial(draw, found),
        len(found.penalties),
    )


def draw(found: Sorted) -> Picture:
    picture, (axes,) = grid(1, len(SHOWN), 2.6)
    for axis, (key, title) in zip(axes, SHOWN.items(), strict=True):
        for name, shown in PENALTIES.items():
            if trials := found.of(name):
                values = stacked([trial.result[key] for trial in trials])
                x, centre = np.arange(values.shape[1]), np.nanmedian(values, axis=0)
                axis.plot(
                    x, centre, label=shown.label, color=shown.colour, linestyle=shown.line, marker=shown.marker, markevery=20
                )
                axis.fill_between(
                    x, np.nanmin(values, axis=0), np.nanmax(values, axis=0), color=shown.colour, alpha=0.08, linewidth=0
                )
        axis.set(title=title, xlabel="step of Adam")
    axes[2].set_yscale("log")
    legend(picture, [axes])
    return picture


def table(found: Sorted) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, shown in PENALTIES.items():
        if trials := found.of(name):
            ends = [middle(trials, lambda t, k=k, i=i: t.result[k][i]) for k in (*SHOWN, "movement") for i in (0, -1)]
            rows.append((shown.label, *map(short, (*ends, middle(trials, lambda t: t.result["moved"])))))
    heads = [f"{name}{when}" for name in ("σ_min", "ρ(J)", "adjoint error", "last step") for when in ("", " → end")]
    note = "Medians over seeds. Last step: how far the state still moves, relative to its norm. Moved: ‖W − W₀‖ / ‖W₀‖."
    return Table("theory-a1-table", "A1: before and after the descent.", ("penalty", *heads, "W moved"), tuple(rows), note)
