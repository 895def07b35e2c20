"""The pictures of a diagnosis and of a history; the only part that needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steadygrad.diagnose.diagnosis import Diagnosis
    from steadygrad.diagnose.history import Entry

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#767676"


def draw(d: Diagnosis) -> Any:
    """Residuals, spectrum and decay side by side."""
    figure, (left, middle, right) = _new_figure(3)
    _residuals(left, d)
    _spectrum(middle, d)
    _decay(right, d)
    return figure


def draw_history(entries: Sequence[Entry]) -> Any:
    """ρ(J), the forward and the adjoint residual over training."""
    figure, (left, right) = _new_figure(2)
    calls = [entry.call for entry in entries]
    left.plot(calls, [entry.spectral_radius for entry in entries], "o-", color=BLUE, markersize=3)
    left.axhline(1, color=GREY, linestyle="--", linewidth=1)
    _label(left, "spectral radius ρ(J)", "forward call", "ρ(J)")
    right.plot(calls, [_positive(entry.relative_residual) for entry in entries], "o-", color=BLUE, markersize=3, label="forward")
    adjoint = [_positive(math.nan if entry.adjoint_residual is None else entry.adjoint_residual) for entry in entries]
    right.plot(calls, adjoint, "s--", color=ORANGE, markersize=3, label="adjoint")
    right.set_yscale("log")
    right.legend(frameon=False)
    _label(right, "relative residuals", "forward call", "residual")
    return figure


def _new_figure(panels: int) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'steadygrad[experiments]'.") from error
    figure = Figure(figsize=(4.2 * panels, 3.6), layout="constrained")
    return figure, figure.subplots(1, panels)


def _residuals(axes: Any, d: Diagnosis) -> None:
    axes.plot([_positive(value) for value in d.motion.residuals], "o-", color=BLUE, markersize=3)
    if any(value > 0 for value in d.motion.residuals):
        axes.set_yscale("log")
    _label(axes, f"F applied again: {d.motion.kind}", "step", "‖F(h) − h‖ / ‖F(h)‖")


def _spectrum(axes: Any, d: Diagnosis) -> None:
    angles = [2 * math.pi * i / 200 for i in range(201)]
    axes.plot([math.cos(a) for a in angles], [math.sin(a) for a in angles], color=GREY, linewidth=1, linestyle="--")
    axes.plot([value.real for value in d.eigenvalues], [value.imag for value in d.eigenvalues], "x", color=BLUE, markersize=5)
    axes.plot([1], [0], "D", color=ORANGE, markersize=5)
    axes.annotate("1", (1, 0), textcoords="offset points", xytext=(6, 4), color=ORANGE)
    axes.set_aspect("equal")
    reach = 1.1 * max([1.0, *(abs(value) for value in d.eigenvalues)])
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach))
    _label(axes, f"outer eigenvalues of J, ρ = {d.spectral_radius:.3g}", "real part", "imaginary part")


def _decay(axes: Any, d: Diagnosis) -> None:
    if d.decay is not None:
        axes.plot([_positive(value) for value in d.decay.powers], "-", color=BLUE, label="‖(Jᵀ)ᵏb‖ / ‖b‖")
        if d.decay.errors:
            axes.plot([_positive(value) for value in d.decay.errors], "--", color=ORANGE, label="error of Neumann(k)")
        axes.set_yscale("log")
        axes.legend(frameon=False)
    else:
        axes.text(0.5, 0.5, "J = 0: nothing to show", ha="center", va="center", transform=axes.transAxes, color=GREY)
    _label(axes, "decay of the Neumann series", "k", "relative size")


def _positive(value: float) -> float:
    """What a logarithmic axis can show."""
    return value if value > 0 and math.isfinite(value) else math.nan


def _label(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
