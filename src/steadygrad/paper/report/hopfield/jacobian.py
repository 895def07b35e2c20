"""What makes the methods work: the energy falls along retrieval, and ρ(J) stays below one through training."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hopfield.trials import PASSES, K, drawn, good, seen
from steadygrad.paper.report.panels import DOTTED, Panel, Points, draw
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.trial import Group, Trial, finite, middle

__all__ = ["K", "drawn", "good"]  # for the template
ADJOINT = ("rbp-uniform", "rbp-zeros", "cg-rbp", "neumann-rbp", "auto")
"""The methods that solve the adjoint equation, hence have a residual of it."""


def middles(setting: Group) -> list[float | None]:
    """Of BPTT, TBPTT, CG-RBP and Neumann-RBP: the peak of ρ(J) in training, ρ(J) and ‖J‖₂ at the end."""
    peak = middle(good(setting), lambda trial: max(finite(trial.seen("spectral_radius")), default=None))
    return [peak, *(middle(good(setting), lambda t, k=k: t.result[k]) for k in ("spectral_radius", "norm"))]


def energies(found: Found) -> Picture:
    def remaining(trial: Trial) -> Points:
        E = trial.result["energy"]
        return range(len(E)), [(value - E[-1]) / (E[0] - E[-1]) if E[0] != E[-1] else 0.0 for value in E]

    def begin(axis: Axes) -> None:
        axis.set_xlim(-0.5, 20.5)

    y = r"$(E_t - E_T)\,/\,(E_0 - E_T)$"
    return draw([[Panel(s.curves(remaining), s.title, "step t", y, True, height=(1e-6, 2), last=begin) for s in found.all]])


def radii(found: Found) -> Picture:
    rows: list[list[Panel]] = []
    for s in found.all:
        residuals = s.curves(seen("adjoint_residual"), [method for method in s.methods() if method in ADJOINT])
        left = Panel(s.curves(seen("spectral_radius")), f"{s.title}: spectral radius", PASSES, "ρ(J)", height=(0, None))
        rows.append([left, Panel(residuals, f"{s.title}: adjoint residual", PASSES, "‖b − (I − Jᵀ)z‖ / ‖b‖", True, level=1)])
    picture = draw(rows, {"as large as b": DOTTED})
    for radius, residual in zip(picture.axes[::2], picture.axes[1::2], strict=True):
        residual.set_xlim(radius.get_xlim())
    return picture
