"""What all pictures of the records share: colours that colour-blind readers tell apart, quiet axes, and saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Okabe and Ito's colours, with grey for their yellow, which is faint on white; markers differ too, for print without colours.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#777777",
)  # fmt: skip
MARKERS = "osD^vP*X<>"


def subplots(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """An empty figure and its panels, drawn without a screen, text kept as text and names of parts the same in every run."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "steadygrad"
    from matplotlib import pyplot as plt

    return plt.subplots(rows, columns, figsize=size, squeeze=False, **options)


def finish(panel: Any, legend: bool = True) -> None:
    """A light grid, no frame, and numbers such as 1000 instead of 10³ on logarithmic axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (panel.xaxis, panel.yaxis):
        if axis.get_scale() == "log" and panel.get_xscale() == panel.get_yscale():
            low, high = axis.get_view_interval()
            steps = (1, 2, 5) if high / low < 300 else (1,)  # decades alone would leave one number on a short axis
            axis.set_major_locator(LogLocator(subs=steps))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
    panel.grid(True, which="major", alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    if legend:
        panel.legend(fontsize=8, frameon=False)


def legend_below(figure: Any, panel: Any, columns: int) -> None:
    """The legend of a panel below the whole figure, where it leaves the panels their width on a narrow screen."""
    handles, labels = panel.get_legend_handles_labels()
    place = {"loc": "upper center", "bbox_to_anchor": (0.53, 0.02)}
    figure.legend(handles, labels, ncols=columns, fontsize=9, frameon=False, **place)


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write SVG and PNG; the two paths."""
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for kind in ("svg", "png"):
        path = folder / f"{name}.{kind}"
        figure.savefig(path, bbox_inches="tight", dpi=130, metadata={"Date": None} if kind == "svg" else None)
        written.append(path)
    plt.close(figure)
    return written
