"""What each change of the corrected mode is worth, many more passes, single departures towards the released code, and cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.fidelity import variants, words
from steadygrad.paper.report.hopfield.h2 import wrong_pixels
from steadygrad.paper.report.hopfield.h3 import unpacked
from steadygrad.paper.report.hopfield.trials import LOSS, PASSES, K, left, training
from steadygrad.paper.report.panels import DASHED, DOTTED, Panel, draw
from steadygrad.paper.report.sorting import Found, grouped
from steadygrad.paper.report.style import curve, ordered
from steadygrad.paper.report.trial import Group, Trial, middle

__all__ = ["K", "left", "middle"]  # for the template
LONG = 3
"""A variant of so many times the passes of its mode gets a curve of its own."""


def taken_back(found: Found) -> dict[str, Group]:
    """The corrected mode with one of its changes taken back, by what that is."""
    readout = "sigmoid read-out and cross-entropy → raw state and L1"
    base = found.corrected
    return {words(base, other, mode=readout): other for other in variants(base)} if base else {}


def worse(found: Found) -> list[tuple[str, str]]:
    """The share of wrong pixels that each change leaves when it is taken back."""
    return sorted(((f"{wrong_pixels(v.trials):.3g} %", what) for what, v in taken_back(found).items()), reverse=True)


def compared(found: Found) -> list[tuple[str, list[Trial]]]:
    """The corrected mode, each change taken back alone, and all of them: as published. The trials of each method."""
    groups: dict[str, Sequence[Trial]] = {what: other.trials for what, other in taken_back(found).items()}
    methods = ordered([trial.method for trials in groups.values() for trial in trials])

    def whole(setting: Group | None) -> list[Trial]:
        return [trial for method in methods for trial in setting.of(method)] if setting else []

    passes = f", {found.published.length.ran} passes" if found.published else ""
    groups = {"nothing: corrected": whole(found.corrected), **groups, f"everything: as published{passes}": whole(found.published)}
    return [(words, of) for words, trials in groups.items() for of in grouped(trials, lambda trial: trial.method)]


def final_loss(trial: Trial) -> float:
    return trial.result["final_loss"]


def wrong(trial: Trial) -> float:
    return wrong_pixels([trial])


def long_trials(found: Found) -> list[Trial]:
    """Trials of many more passes than those of their mode."""
    far = [other for base in found.all for other in variants(base) if other.length.ran >= LONG * base.length.ran]
    groups = (sorted(group.trials, key=lambda trial: (trial.method, trial.seed)) for group in (*found.longer, *far))
    return list(chain(*groups))


def long(trials: Sequence[Trial]) -> Picture:
    """Training losses, a panel a size of network."""

    def lines(axis: Axes, trials: Sequence[Trial]) -> None:
        for trial in trials:
            curve(axis, trial.method, range(1, 1 + len(training(trial))), training(trial))
        axis.axhline(constant_loss(trials[0]), **DOTTED)
        axis.axhline(0.5 * trials[0].result["initial_loss"], **DASHED)

    panels: list[Panel] = []
    for shown in sorted({network(trial) for trial in trials}, reverse=True):
        these = [trial for trial in trials if network(trial) == shown]
        panels.append(Panel({}, "{0} / {1} / {0} neurons".format(*shown), PASSES, LOSS, True, last=partial(lines, trials=these)))
    return draw([panels], {"best constant image": DOTTED, "half the initial loss": DASHED})


def network(trial: Trial) -> tuple[int, int]:
    return trial.config["side"] ** 2, trial.config["hidden"]


def constant_loss(trial: Trial) -> float:
    """The L1 loss of the image that is the pixelwise median of the ten: what a network without memory can reach."""
    share = unpacked(trial.result["images"]["clean"], trial.config["side"]).mean(axis=0)
    return float(np.minimum(share, 1 - share).mean())
