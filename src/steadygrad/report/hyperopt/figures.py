"""The curves of the hyperopt section: meta losses, last trainings, and how right the hypergradients are on the way."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.report.hyperopt.costs import Way
from steadygrad.report.hyperopt.measures import times
from steadygrad.report.hyperopt.panels import ZERO, Points, Series, floored, line, lines, logarithmic, marked, zeros_shown
from steadygrad.report.hyperopt.trials import Cell, Mode, Trial, nearest
from steadygrad.report.panels import DOTTED, grid, legend

MOST = 4
"""Panels across."""
SHORTLY = {"full": "all images", "average": "averaged batches", "step": "one batch", "fresh": "fresh batches"}
META_LOSS = {"as-published": "meta loss (training)", "corrected": "meta loss (validation)"}


def meta_loss(mode: Mode) -> Picture:
    """M1: the meta loss over meta steps, a panel a T and K."""
    return table_of_panels(mode, tuned, "meta step", META_LOSS[mode.name])


def tuned(trial: Trial) -> Points:
    return range(1, len(trial.meta_loss) + 1), trial.meta_loss


def last_training(mode: Mode) -> Picture:
    """M2: the training loss along the last meta step's training, a panel a T and K."""
    return table_of_panels(mode, trained, "training step", "training loss")


def trained(trial: Trial) -> Points | None:
    found = trial.result.get("last_training")
    return (found["step"], found["loss"]) if found and found["loss"] else None


def weights(mode: Mode) -> Picture:
    """The mean weight of images whose label is wrong relative to that of the others, where images have weights."""
    return table_of_panels(mode, weighed, "meta step", "weight, wrong / right label")


def weighed(trial: Trial) -> Points | None:
    found = trial.result.get("weight") or {}
    if not found.get("wrong"):
        return None
    values = [times(wrong, right) for wrong, right in zip(found["wrong"], found["right"], strict=True)]
    return range(1, len(values) + 1), values


def table_of_panels(mode: Mode, series: Series, xlabel: str, ylabel: str) -> Picture:
    """Columns: T; rows: K. Where many of them were not tried, those that were, one after the other."""
    table = [[mode.cell(T, K) for T in mode.lengths] for K in mode.counts]
    if any(None in row for row in table):
        found = sorted(mode.cells, key=lambda cell: (cell.K or 0, cell.T))
        across = min(MOST, len(found))
        table = [[*found[i : i + across], *[None] * (i + across - len(found))] for i in range(0, len(found), across)]
    picture, rows = grid(len(table), len(table[0]), 1.9)
    for cells, axes in zip(table, rows, strict=True):
        for cell, axis in zip(cells, axes, strict=True):
            if cell is None:
                axis.set_axis_off()
            else:
                lines(axis, by_method(cell), series)
                axis.set(title=cell.title)
                logarithmic(axis)
    label(rows, xlabel, ylabel)
    legend(picture, rows)
    return picture


def by_method(cell: Cell, *without: str) -> dict[str, list[Trial]]:
    return {method: cell.of(method) for method in cell.methods() if method not in without}


def label(rows: Sequence[Sequence[Axes]], xlabel: str, ylabel: str) -> None:
    """Words at the left and below only: panels of a table share them."""
    for axes in rows:
        next(axis for axis in axes if axis.axison).set_ylabel(ylabel)
    for column in zip(*rows, strict=True):
        [axis for axis in column if axis.axison][-1].set_xlabel(xlabel)


def referred(mode: Mode, K: int | None) -> list[Cell]:
    """The settings of this K in which a hypergradient was compared with BPTT's."""
    cells = [cell for cell in mode.cells if cell.K == K]
    return [cell for cell in cells if any(compared(trial, "cosine") for trial in cell.trials)]


def compared(trial: Trial, what: str) -> Points | None:
    found = trial.result.get("reference")
    if trial.method == "bptt" or not found or not found["meta_step"]:
        return None
    return found["meta_step"], zeros_shown(found[what]) if what == "cosine" else floored(found[what])


def reference(mode: Mode, K: int | None) -> Picture:
    """Cosine and relative error of each method's hypergradient to exact BPTT at the same hyperparameters, a column a T."""
    cells = referred(mode, K)
    picture, (upper, lower) = grid(2, len(cells), 1.9)
    for cell, cosine, relative in zip(cells, upper, lower, strict=True):
        lines(cosine, by_method(cell, "bptt"), lambda trial: compared(trial, "cosine"))
        lines(relative, by_method(cell, "bptt"), lambda trial: compared(trial, "relative"))
        relative.axhline(1, **DOTTED)
        cosine.set(title=cell.title, ylim=(-1.08, 1.08))
        relative.set(xlabel="meta step")
        logarithmic(relative)
    upper[0].set_ylabel("cosine to BPTT")
    lower[0].set_ylabel("relative error")
    legend(picture, [upper, lower], **{ZERO: DOTTED})
    return picture


def costs(ways: Sequence[Way]) -> Picture:
    """M3: CPU seconds and memory over T, a row a way to take the last step."""
    picture, rows = grid(len(ways), 2)
    for way, axes in zip(ways, rows, strict=True):
        K, lengths = nearest(way.counts), way.lengths()
        for place, method in enumerate(way.methods()):
            taken = [way.cost(method, K, T) for T in lengths]
            for axis, values in zip(axes, ([c.seconds for c in taken], [c.memory for c in taken]), strict=True):
                line(axis, method, [(lengths, values)], place, len(way.methods()))
        axes[0].set(title=f"{way.mode.title}, last step on {shortly(way)}", ylabel="CPU time, s")
        axes[1].set(ylabel="memory, MB")
        for axis in axes:
            axis.set(xlabel=f"training steps T (K = {K})")
            marked(axis, lengths)
            logarithmic(axis)
    legend(picture, rows)
    return picture


def shortly(way: Way) -> str:
    return SHORTLY.get("full" if way.mode.name == "corrected" else way.last, way.last)
