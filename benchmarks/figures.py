"""Pictures of the records: how cost and memory grow, on logarithmic axes, and auto beside the best single solver."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import error_figures, store
from benchmarks.drawing import BLACK, BLUE, GREEN, GREY, MARKERS, ORANGE, PURPLE, RED, SKY, finish, legend_below, save, subplots
from benchmarks.hindsight import OVER_RADIUS
from benchmarks.store import Record

AXES = {"size": "numbers a row", "rows": "rows of the state", "T": "forward steps T", "K": "products K"}


def draw(records: dict[str, Record], folder: Path, pictures: Path | None = None) -> list[Path]:
    """Draw what there are records for, as SVG and PNG; the files that were written. `pictures` gets that of the README."""
    figures: dict[str, tuple[Path, str, Callable[[list[Record]], Any]]] = {
        "growth": (folder, "growth", growth),
        "memory": (folder, "memory", memory),
        "hindsight": (folder, "hindsight", hindsight),
        "radius": (folder, "hindsight", radius),
        "error-memory": (folder, "gradient_error", partial(error_figures.gradient_error, axis="states")),
        "error-seconds": (folder, "gradient_error", partial(error_figures.gradient_error, axis="ms")),
        "wrong-gradient": (pictures or folder, "wrong_gradient", error_figures.wrong_gradient),
    }
    written: list[Path] = []
    for name, (place, benchmark, picture) in figures.items():
        figure = picture(store.of(benchmark, records))
        if figure is not None:
            written += save(figure, place, name)
    return written


def growth(rows: list[Record]) -> Any:
    """Milliseconds over each axis, with the exponents fitted to the three largest values in the legend."""
    if not rows:
        return None
    lines = (len(rows) + 1) // 2
    figure, grid = subplots(lines, 2, (6.2, 2.8 * lines), sharey=True)
    panels = list(grid.flat)
    for panel in panels[len(rows) :]:
        panel.set_visible(False)
    for panel, row in zip(panels, rows, strict=False):
        f = row["figures"]
        for (name, ms), colour, marker in zip(f["ms"].items(), (BLACK, BLUE), "so", strict=True):
            label = f"{name}, slope {f['exponents'][name]:.2f}"
            style = "--" if name == "by hand" else "-"
            panel.loglog(f["values"], ms, style, marker=marker, color=colour, markersize=4, label=label)
        panel.set_xlabel(AXES[row["row"]])
        finish(panel)
    for line in grid:
        line[0].set_ylabel("ms, one gradient")
    figure.tight_layout()
    return figure


def memory(rows: list[Record]) -> Any:
    """Peak in states over T and over K, every method."""
    rows = [row for row in rows if "T" in row["figures"]]
    if not rows:
        return None
    figure, grid = subplots(2, 1, (5.4, 6.2))
    panels = grid[:, 0]
    colours = (BLUE, SKY, GREEN, GREY, PURPLE, BLACK, ORANGE, RED, GREEN, BLUE)
    for row, colour, marker in zip(rows, colours, MARKERS, strict=False):
        f = row["figures"]
        for panel, axis in zip(panels, ("T", "K"), strict=True):
            peaks = [value / f["state"] for value in f[axis]["tensors"]]
            panel.loglog(
                f[axis]["counts"], peaks, marker=marker, color=colour, markersize=5, label=row["row"].removeprefix("steps: ")
            )
    panels[0].set_xlabel("forward steps T (K = 20)")
    panels[1].set_xlabel("products K (T = 200)")
    for panel in panels:
        panel.set_ylabel("peak of tensors, in states")
        finish(panel, legend=False)
    legend_below(figure, panels[1], columns=4)
    figure.tight_layout()
    return figure


def hindsight(rows: list[Record]) -> Any:
    """Auto over the best single solver, a point a family; hollow where auto did not succeed."""
    rows = [row for row in rows if row["figures"].get("auto_over_best")]
    if not rows:
        return None
    families = list(dict.fromkeys(row["row"].split(": ")[1] for row in rows))
    figure, grid = subplots(1, 1, (6.5, 0.32 * len(families) + 1.2))
    panel = grid[0, 0]
    styles = {("cheap", "Auto"): (BLUE, "o"), ("dear", "Auto"): (RED, "s"), ("dear", "Auto, told dear"): (GREEN, "D")}
    for (cost, name), (colour, marker) in styles.items():
        points = [
            (row["figures"]["auto_over_best"][name], families.index(row["row"].split(": ")[1]), row["figures"]["outcomes"][name])
            for row in rows
            if row["row"].startswith(cost) and name in row["figures"]["auto_over_best"]
        ]
        for ratio, place, outcome in points:
            face = colour if outcome["succeeds"] else "white"
            panel.plot(ratio, place, marker, color=colour, markerfacecolor=face, markersize=6)
        if points:
            panel.plot([], [], marker, color=colour, label=f"F {cost}" + (", told so" if "told" in name else ""))
    panel.plot([], [], "o", color=BLACK, markerfacecolor="white", label="auto did not succeed")
    panel.axvline(1.0, color=BLACK, linewidth=0.8)
    panel.axvline(1.3, color=BLACK, linewidth=0.8, linestyle=":")
    panel.set_xscale("log")
    panel.set_xticks([0.5, 1, 1.3, 2, 5, 10], ["0.5", "1", "1.3", "2", "5", "10"])
    panel.minorticks_off()
    panel.set_yticks(range(len(families)), families, fontsize=9)
    panel.invert_yaxis()
    panel.set_xlabel("seconds of auto over the best single solver (dotted: the aim)")
    finish(panel, legend=False)
    legend_below(figure, panel, columns=2)
    figure.tight_layout()
    return figure


SOLVERS: dict[str, tuple[str, str]] = {
    "Neumann": (BLUE, "o"),
    "Picard": (SKY, "s"),
    "Anderson": (PURPLE, "D"),
    "Broyden": (GREY, "P"),
    "GMRES": (ORANGE, "^"),
    "BiCGSTAB": (GREEN, "v"),
    "LSQR": (BLACK, "X"),
    "NormalCG": (BLACK, "<"),
    "Auto": (RED, "*"),
    "Auto, told dear": (RED, "P"),
}
"""Colour and marker of each solver."""


def radius(rows: list[Record]) -> Any:
    """Milliseconds of one adjoint solve over ρ(J), a line a solver, for a cheap F above and a dear one below."""
    found = {row["row"]: row["figures"] for row in rows}
    costs = [cost for cost in ("cheap", "dear") if any(f"{cost}: {family}" in found for family in OVER_RADIUS)]
    if not costs:
        return None
    figure, panels = subplots(len(costs), 1, (5.4, 3.1 * len(costs) + 0.8))
    for panel, cost in zip(panels[:, 0], costs, strict=True):
        there = [family for family in OVER_RADIUS if f"{cost}: {family}" in found]
        for solver, (colour, marker) in SOLVERS.items():
            if cost == "cheap" and "dear" in solver:
                continue
            points = [(OVER_RADIUS[family], time_of(found[f"{cost}: {family}"], solver)) for family in there]
            points = [(1 - rho, ms) for rho, ms in points if ms is not None]
            style = {"linewidth": 2.2 if solver == "Auto" else 1, "markersize": 10 if solver == "Auto" else 5}
            panel.loglog(*zip(*points, strict=True), marker=marker, color=colour, label=solver, **style) if points else None
        panel.invert_xaxis()
        panel.set_xticks([1 - rho for rho in OVER_RADIUS.values()], [f"{rho:g}" for rho in OVER_RADIUS.values()])
        product = found[f"{cost}: {there[0]}"]["product_ms"]
        panel.set_title(f"F is {cost}: a product takes {product:.2g} ms", fontsize=10)
        panel.set_ylabel("milliseconds of a solve")
        finish(panel, legend=False)
        panel.set_xticks([1 - rho for rho in OVER_RADIUS.values()], [f"{rho:g}" for rho in OVER_RADIUS.values()])
        panel.minorticks_off()
    panels[-1, 0].set_xlabel("ρ(J), random J, state 32×64, to 1e-5")
    legend_below(figure, panels[-1, 0], columns=4)
    figure.tight_layout()
    return figure


def time_of(figures: dict[str, Any], solver: str) -> float | None:
    """Milliseconds of a solver that succeeds; None for one that does not, or was not run."""
    succeeds = figures["outcomes"].get(solver, {}).get("succeeds")
    return figures["times"][solver]["ms"] if succeeds and solver in figures["times"] else None
