"""Pictures of wrong gradients: error against memory and seconds for all methods, and one that a peer lets pass."""

from __future__ import annotations

from typing import Any

from benchmarks.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, finish, legend_below, subplots
from benchmarks.store import Record
from benchmarks.wrong_gradient import DEFAULT_CALL

STYLES: dict[str, tuple[str, str]] = {
    "RBP": (SKY, "s"),
    "CG-RBP": (PURPLE, "v"),
    "Neumann-RBP": (BLUE, "o"),
    "one step": (GREY, "o"),
    "auto": (RED, "*"),
    "TBPTT": (ORANGE, "^"),
    "ARTBP": (ORANGE, "X"),
    "Phantom": (GREY, "P"),
    "BPTT": (BLACK, "s"),
    "BPTT √T": (GREEN, "D"),
    "BPTT log T": (GREEN, "v"),
    "Reversible": (BLACK, "<"),
}
"""Colour and marker of a method; open markers are those whose gradient is that of the steps taken, exact at any state."""
EXACT = ("BPTT", "BPTT √T", "BPTT log T", "Reversible")
AXES = {"states": "peak of tensors, in states", "ms": "milliseconds of the call, forward steps included"}
TITLES = {"steady": "at a steady state", "not steady": "not at a steady state"}


def gradient_error(rows: list[Record], axis: str) -> Any:
    """Error over `axis` ("states" or "ms"), a panel for the steady state above one for a state that still moves."""
    rows = [row for row in rows if row["row"] in TITLES]
    if not rows:
        return None
    figure, panels = subplots(len(rows), 1, (5.4, 3.3 * len(rows) + 0.9), sharex=False)
    for panel, row in zip(panels[:, 0], rows, strict=True):
        for method, points in by_method(row["figures"]["points"]).items():
            colour, marker = STYLES[method]
            face = "white" if method in EXACT else colour
            style = {"color": colour, "marker": marker, "markerfacecolor": face, "markersize": 9 if method == "auto" else 6}
            panel.loglog([p[axis] for p in points], [p["error"] for p in points], label=method, linewidth=1, **style)
        f = row["figures"]
        panel.set_title(f"{TITLES[row['row']]} (T = {f['steps']}, residual {f['relative_residual']:.0e})", fontsize=10)
        panel.set_ylabel("relative error of the gradient")
        finish(panel, legend=False)
        panel.set_yticks([1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1], [*(f"1e{n}" for n in range(-7, 0)), "1"])
    panels[-1, 0].set_xlabel(AXES[axis])
    legend_below(figure, panels[0, 0], columns=3)
    figure.tight_layout()
    return figure


def by_method(points: dict[str, dict[str, float]]) -> dict[str, list[dict[str, float]]]:
    """The points of each method in the order of their counts, methods in the order of STYLES."""
    found: dict[str, list[dict[str, float]]] = {method: [] for method in STYLES}
    for name, point in points.items():
        found[name.split(", ")[0]].append(point)
    return {method: some for method, some in found.items() if some}


SHOWN = (10, 20, 40, 80, 160, 320)
"""Steps of which the README's picture shows the error."""


def wrong_gradient(rows: list[Record]) -> Any:
    """The error that torchdeq does not mention over the steps of its adjoint solver, and ours with what we say of it."""
    found = {row["row"]: row["figures"] for row in rows}
    if "torchdeq" not in found or "steadygrad" not in found:
        return None
    theirs, ours = found["torchdeq"], found["steadygrad"]
    counts = [count for count in theirs["counts"] if count in SHOWN] or theirs["counts"]
    theirs_at, ours_at, told_at = (
        [100 * values[theirs["counts"].index(count)] for count in counts]
        for values in (theirs["errors"], ours["errors"], ours["estimates"])
    )
    figure, panels = subplots(1, 1, (6.4, 3.9))
    panel, places = panels[0, 0], range(len(counts))
    panel.bar([place - 0.2 for place in places], theirs_at, 0.38, color=RED, hatch="//", edgecolor="white")
    panel.bar([place + 0.2 for place in places], ours_at, 0.38, color=BLUE)
    panel.plot(
        [place + 0.2 for place in places], told_at, "o", color=BLACK, markerfacecolor="white", markersize=10, clip_on=False
    )
    names = [str(count) for count in counts]
    if DEFAULT_CALL in found:
        call = found[DEFAULT_CALL]
        names.append(f"default call:\n{call['counts'][0]} products")
        panel.plot(len(counts), 100 * call["errors"][0], "*", color=BLUE, markersize=15, clip_on=False)
    explain(panel, theirs, counts, theirs_at)
    panel.set_xticks(range(len(names)), names)
    panel.set_xlabel("steps that the backward solver has")
    panel.set_ylabel("error of the gradient, %")
    panel.set_ylim(0, None)
    panel.grid(True, axis="y", alpha=0.25)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def explain(panel: Any, theirs: dict[str, Any], counts: list[int], errors: list[float]) -> None:
    """The legend, and an arrow at torchdeq's own default if it was measured."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=RED, hatch="//", edgecolor="white", label="torchdeq: true error. It says nothing"),
        Patch(facecolor=BLUE, label="steadygrad: true error. It warns …"),
        Line2D(
            [], [], color=BLACK, marker="o", linestyle="", markerfacecolor="white", markersize=9, label="… and estimates this"
        ),
        Line2D([], [], color=BLUE, marker="*", linestyle="", markersize=12, label="steadygrad left to itself: right"),
    ]
    panel.legend(handles=handles, fontsize=10, frameon=False, loc="upper right")
    if theirs["default"] in counts:
        place = counts.index(theirs["default"])
        words = f"the default of torchdeq:\n{errors[place]:.0f} % wrong, silently"
        end = {"xytext": (place + 0.15, max(errors) * 0.58), "fontsize": 10, "color": RED}
        panel.annotate(words, (place - 0.2, errors[place]), arrowprops={"arrowstyle": "->", "color": RED}, **end)
