"""What the methods cost, and under which settings they ran."""

from __future__ import annotations

from steadygrad.report import generic
from steadygrad.report.hopfield.trials import TITLES, K, Sorted, Trial, middle
from steadygrad.report.section import Table
from steadygrad.report.style import look
from steadygrad.report.text import short


def cost(found: Sorted) -> Table:
    """What each method costs, K = 20."""
    rows: list[tuple[str, ...]] = []
    for mode in found.all:
        for method in mode.methods():
            trials = mode.of(method)
            rows.append(
                (
                    mode.title,
                    look(method).label,
                    short(middle(trials, lambda trial: trial.measured.get("milliseconds_per_step"))),
                    short(middle(trials, lambda trial: last(trial, "forward_steps"))),
                    short(middle(trials, lambda trial: last(trial, "adjoint_products"))),
                    short(middle(trials, lambda trial: last(trial, "adjoint_residual"))),
                    short(middle(trials, lambda trial: trial.measured.get("training_seconds"))),
                    short(middle(trials, lambda trial: trial.measured.get("peak_mb"))),
                )
            )
    batches = "; ".join(f"{mode.title.lower()} {mode.setting['batch']}" for mode in found.all)
    return Table(
        f"What each method costs, K = {K}: medians over seeds.",
        ("mode", "method", "ms a step", "updates of F", "products with J", "adjoint residual", "training, s", "peak MB"),
        tuple(rows),
        f"A step is one batch of images ({batches}), forward and backward, on one core while another trial ran on the other. "
        "Updates, products and residual are those of the last step; the unrolled methods solve no adjoint equation. Peak memory "
        "is that of the whole process, most of it the libraries. The machine was shared: a factor of two in time means little.",
    )


def last(trial: Trial, name: str) -> float | None:
    return next((value for value in reversed(trial.seen(name)) if value is not None), None)


def settings(found: Sorted) -> Table:
    """The settings of both modes side by side."""
    names = generic.keys([mode.setting for mode in found.all])
    rows = [(name, *(generic.cell(mode.setting.get(name)) for mode in found.all)) for name in names if name != "mode"]
    rows += [("seeds", *(str(len({trial.seed for trial in mode.trials})) for mode in found.all))]
    rows += [("K", *(", ".join(map(str, mode.counts)) or "–" for mode in found.all))]
    rows += [("pixel and loss", *(READOUTS[mode.name] for mode in found.all))]
    return Table("Settings of the modes.", ("setting", *(TITLES[mode.name].lower() for mode in found.all)), tuple(rows))


READOUTS = {"as-published": "state h, L1", "corrected": "φ(bh), cross-entropy"}
