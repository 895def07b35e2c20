"""Pictures of the records: how cost and memory grow, on logarithmic axes, and auto beside the best single solver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import store
from benchmarks.store import Record

# Okabe and Ito's colours, which colour-blind readers tell apart, with grey for their yellow, which is faint on white; markers
# differ too, for print without colours.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#777777",
)  # fmt: skip
MARKERS = "osD^vP*X"
AXES = {"size": "numbers a row", "rows": "rows of the state", "T": "forward steps T", "K": "products K"}


def draw(records: dict[str, Record], folder: Path) -> list[Path]:
    """Draw what there are records for, as SVG and PNG; the files that were written."""
    import matplotlib

    matplotlib.use("Agg")
    written: list[Path] = []
    for name, picture in {"growth": growth, "memory": memory, "hindsight": hindsight}.items():
        figure = picture(store.of(name, records))
        if figure is None:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for kind in ("svg", "png"):
            path = folder / f"{name}.{kind}"
            figure.savefig(path, bbox_inches="tight", dpi=130, metadata={"Date": None} if kind == "svg" else None)
            written.append(path)
    return written


def growth(rows: list[Record]) -> Any:
    """Milliseconds over each axis, with the fitted exponents in the legend."""
    from matplotlib import pyplot as plt

    if not rows:
        return None
    figure, panels = plt.subplots(1, len(rows), figsize=(3.4 * len(rows), 3.2), sharey=True, squeeze=False)
    for panel, row in zip(panels[0], rows, strict=True):
        f = row["figures"]
        for (name, ms), colour, marker in zip(f["ms"].items(), (BLACK, BLUE), "so", strict=True):
            label = f"{name}: slope {f['exponents'][name]:.2f}"
            style = "--" if name == "by hand" else "-"
            panel.loglog(f["values"], ms, style, marker=marker, color=colour, markersize=4, label=label)
        panel.set_xlabel(AXES[row["row"]])
        finish(panel)
    panels[0][0].set_ylabel("milliseconds, one gradient")
    figure.suptitle("Cost of one gradient by fixed counts (slopes of the three largest)", fontsize=10)
    figure.tight_layout()
    return figure


def memory(rows: list[Record]) -> Any:
    """Peak in states over T and over K, every method."""
    from matplotlib import pyplot as plt

    rows = [row for row in rows if "T" in row["figures"]]
    if not rows:
        return None
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    colours = (BLUE, SKY, GREEN, GREY, PURPLE, BLACK, ORANGE, RED)
    for row, colour, marker in zip(rows, colours, MARKERS, strict=False):
        f = row["figures"]
        for panel, axis in zip(panels, ("T", "K"), strict=True):
            peaks = [value / f["state"] for value in f[axis]["tensors"]]
            panel.loglog(
                f[axis]["counts"], peaks, marker=marker, color=colour, markersize=5, label=row["row"].removeprefix("steps: ")
            )
    panels[0].set_xlabel("forward steps T (K = 20)")
    panels[1].set_xlabel("products K (T = 200)")
    panels[0].set_ylabel("peak of tensors, in states")
    for panel in panels:
        finish(panel, legend=False)
    panels[1].legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.tight_layout()
    return figure


def hindsight(rows: list[Record]) -> Any:
    """Auto over the best single solver, a point a family; hollow where auto did not succeed."""
    from matplotlib import pyplot as plt

    rows = [row for row in rows if row["figures"].get("auto_over_best")]
    if not rows:
        return None
    families = list(dict.fromkeys(row["row"].split(": ")[1] for row in rows))
    figure, panel = plt.subplots(figsize=(6.5, 0.32 * len(families) + 1.2))
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
    panel.set_yticks(range(len(families)), families, fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel("seconds of auto over the best single solver (dotted: the aim)")
    finish(panel, legend=False)
    panel.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def finish(panel: Any, legend: bool = True) -> None:
    """A light grid, no frame, and numbers such as 1000 instead of 10³ on logarithmic axes."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis in (panel.xaxis, panel.yaxis):
        if axis.get_scale() == "log" and panel.get_xscale() == panel.get_yscale():
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
    panel.grid(True, which="major", alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    if legend:
        panel.legend(fontsize=7, frameon=False)
