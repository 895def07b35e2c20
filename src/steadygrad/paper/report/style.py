"""One look for all figures: a colour, a line and a marker a method, told apart in grey and by colour-blind eyes too.

Colours: Okabe and Ito 2008, without the yellow, which is lost on white.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes

Dashes = str | tuple[int, tuple[float, ...]]
Floats = Sequence[float]
POINTS = 120  # of a curve: a panel is some 300 pixels wide, and a curve of 2,000 epochs would make a page of many MB
WIDTH = 7.0  # inches of a figure that takes the whole column
RC: dict[str, Any] = {
    "figure.figsize": (WIDTH, 3.0),
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure on every machine
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), "#444444"),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.7),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8.5),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "legend.handlelength": 2.8,
    "image.cmap": "gray_r",
    "svg.hashsalt": "steadygrad",  # the same records give the same bytes
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Look:
    label: str
    colour: str
    line: Dashes
    marker: str
    width: float = 1.5


METHODS: dict[str, Look] = {
    "baseline": Look("Baseline", "#5A5A5A", (0, (1, 2.5)), "*"),
    "linear": Look("Linear baseline", "#999933", (0, (2, 3)), "8"),
    "bptt": Look("BPTT", "#000000", "-", "o", 2.6),  # the reference: broad and below, so that what covers it leaves a rim
    "bptt-sqrt": Look("BPTT, √(2T) states", "#444444", (0, (4, 1)), "H"),
    "bptt-log": Look("BPTT, log₂ T states", "#888888", (0, (1, 1)), "|"),
    "tbptt": Look("TBPTT", "#E69F00", (0, (5, 2)), "s"),
    "artbp-uniform": Look("ARTBP, uniform", "#8C8C8C", (0, (3, 1.5)), "<"),
    "artbp-poisson": Look("ARTBP, Poisson", "#6B4C9A", (0, (6, 1.5, 1, 1.5, 1, 1.5)), ">"),
    "rbp-uniform": Look("RBP", "#D55E00", (0, (1.2, 1.4)), "^"),
    "rbp-zeros": Look("RBP, z₀ = 0", "#CC79A7", (0, (4, 1.5, 1, 1.5)), "v"),
    "cg-rbp": Look("CG-RBP", "#009E73", (0, (7, 2)), "D"),
    "neumann-rbp": Look("Neumann-RBP", "#0072B2", "-", "P"),
    "auto": Look("auto", "#56B4E9", (0, (2.5, 1.2)), "X"),
    "appnp": Look("APPNP", "#7A5230", (0, (4, 1, 1, 1)), "h"),
    "gcn": Look("GCN", "#B58900", (0, (2, 2)), "p"),
    "forward": Look("Forward mode", "#2F4B7C", (0, (3, 1, 1, 1)), "d"),
}
CHECKPOINTED = ("bptt-sqrt", "bptt-log")
"""BPTT's gradient in less memory: rows of tables of cost and accuracy, no curves of their own."""
THEORY = {  # never in one figure with a method, hence the same colours
    "column-l1": Look("column ℓ₁", "#0072B2", "-", "P"),
    "gershgorin": Look("Gershgorin", "#D55E00", (0, (1.2, 1.4)), "^"),
    "lanczos": Look("λ_min by Lanczos", "#009E73", (0, (7, 2)), "D"),
    "bound": Look("bound of P3", "#5A5A5A", (0, (6, 2, 1, 2)), ""),
    "frobenius": Look("Frobenius (ours)", "#CC79A7", (0, (4, 1.5, 1, 1.5)), "v"),
    "spectral": Look("spectral norm (ours)", "#E69F00", (0, (5, 2)), "s"),
}
ORDER = [*METHODS, *THEORY]


def use() -> AbstractContextManager[None]:
    """`with use(): ...` draws in this style. The page does it around every `draw`."""
    return mpl.rc_context(cast(Any, RC))  # matplotlib annotates the keys as a list of literals


def look(method: str) -> Look:
    """How a method is drawn; one that we do not know is brown and goes by its own name."""
    return METHODS.get(method) or THEORY.get(method) or Look(method, "#7A5230", (0, (4, 1, 1, 1)), "h")


def place(method: str) -> int:
    return ORDER.index(method) if method in ORDER else len(ORDER)


def ordered(methods: Sequence[str]) -> list[str]:
    """The methods without repetition, in the order of every legend and table of ours; unknown ones last."""
    return sorted(set(methods), key=lambda method: (place(method), method))


def curve(axes: Axes, method: str, x: Floats, y: Floats, band: tuple[Floats, Floats] | None = None) -> None:
    """Draw y over x as this method's line, with a band from low to high; some eight markers, staggered so that none hides."""
    kept = thinned(len(x))
    x, y = ([row[i] for i in kept] for row in (x, y))
    shown, step = look(method), max(1, len(x) // 8)
    (line,) = axes.plot(x, y, label=shown.label, color=shown.colour, linestyle=shown.line, linewidth=shown.width)
    line.set(marker=shown.marker, markevery=(place(method) * step // (len(ORDER) + 1), step), zorder=2 + 0.05 * place(method))
    line.set(markeredgecolor="white", markeredgewidth=0.5)
    if band is not None:
        low, high = ([row[i] for i in kept] for row in band)
        axes.fill_between(x, low, high, color=shown.colour, alpha=0.08, linewidth=0)  # seven of them may lie on each other


def thinned(count: int) -> list[int]:
    """The places of a curve that are drawn: all, or so many evenly spread, the first and the last among them."""
    if count <= POINTS:
        return list(range(count))
    return [round(i * (count - 1) / (POINTS - 1)) for i in range(POINTS)]
