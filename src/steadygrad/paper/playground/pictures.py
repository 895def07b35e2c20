"""The playground's figures: transparent, readable on light and on dark pages, and by colour-blind eyes."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from torch import Tensor

from steadygrad.diagnose import Diagnosis
from steadygrad.paper.playground.methods import COUNTS, Comparison
from steadygrad.paper.playground.retrieval import Retrieval

GREY = "#808080"  # as far from white as from black
LOOKS = {
    "Neumann-RBP": ("#2C8FD1", "-", "P"),
    "RBP, z₀ ~ U[0, 1]": ("#E06C1F", ":", "^"),
    "CG-RBP": ("#12A67C", "--", "D"),
    "LSQR": ("#B98CC9", "-.", "s"),
    "GMRES": ("#D9A400", "-", "o"),
    "TBPTT": (GREY, "--", "x"),
}
RC: dict[Any, Any] = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.labelcolor": GREY,
    "font.family": "DejaVu Sans",
    "font.size": 11.5,
}
SHOWN = 7
"""Pictures of the network on its way."""


def of_retrieval(damaged: Tensor, found: Retrieval) -> Figure:
    """The damaged image and what the network shows at some of its steps; below them its energy and its residual."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(9, 4.6), layout="constrained")
        halves: Any = figure.subfigures(2, 1, height_ratios=(1, 1.5))
        above, below = halves
        steps = sorted(
            {round(1 + (len(found.shown) - 2) * (i / (SHOWN - 1)) ** 2) for i in range(SHOWN)}
        )  # more of the beginning
        panels = {"given": damaged, **{f"step {step}": found.shown[step] for step in steps}}
        for axis, (title, image) in zip(above.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            axis.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axis.set_title(title)
            axis.set_xticks([])
            axis.set_yticks([])
        left, right = below.subplots(1, 2)
        left.plot(range(1, len(found.energy)), found.energy[1:], color="#2C8FD1", marker="o", markersize=3)
        left.set(title="Energy: falls until the network rests", xlabel="step", ylabel="energy")
        right.semilogy(range(1, len(found.residual) + 1), found.residual, color="#E06C1F", marker="s", markersize=3)
        right.set(title="Residual ‖F(h) − h‖ / ‖F(h)‖", xlabel="step", ylabel="relative residual")
        return figure


def of_comparison(found: Comparison, K: int) -> Figure:
    """Gradient error against K, a curve a method."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(8, 4.4), layout="constrained")
        axis = figure.subplots()
        for name, errors in found.errors.items():
            colour, line, marker = LOOKS[name]
            if errors:
                seen = [max(error, 1e-16) for error in errors]
                axis.semilogy(COUNTS, seen, color=colour, linestyle=line, marker=marker, markersize=4, label=name)
        axis.axvline(K, color=GREY, linewidth=1, linestyle=":")
        axis.set(title=f"ρ(J) = {found.radius:.2f}, ‖J‖ = {found.norm:.2f}", xlabel="K: terms or steps beyond the first")
        axis.set(ylabel="relative error of the gradient for W")
        axis.legend(ncols=2)
        return figure


def of_diagnosis(found: Diagnosis) -> Figure:
    """The outer eigenvalues of J beside the unit circle."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(4.2, 4.2), layout="constrained")
        axis = figure.subplots()
        axis.add_patch(Circle((0, 0), 1, color="#2C8FD1", alpha=0.12))  # inside it the Neumann series converges
        axis.axhline(0, color=GREY, linewidth=0.6)
        axis.axvline(0, color=GREY, linewidth=0.6)
        axis.scatter([e.real for e in found.eigenvalues], [e.imag for e in found.eigenvalues], color="#E06C1F", s=28, zorder=3)
        axis.plot([1], [0], marker="x", color=GREY, markersize=9, markeredgewidth=2)
        axis.set(title="Outer eigenvalues of J\n×: there I − J is singular", xlabel="real part", ylabel="imaginary part")
        axis.set_aspect("equal", adjustable="datalim")
        return figure
