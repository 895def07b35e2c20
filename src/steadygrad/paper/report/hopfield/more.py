"""What each change of the corrected mode is worth, many more passes, single departures towards the released code, and cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hopfield.h2 import wrong_pixels
from steadygrad.paper.report.hopfield.h3 import unpacked
from steadygrad.paper.report.hopfield.trials import LOSS, PASSES, K, Setting, Sorted, Variant, left, training
from steadygrad.paper.report.panels import DASHED, DOTTED, Panel, draw
from steadygrad.paper.report.style import curve, ordered
from steadygrad.paper.report.trial import WHOLE, Trial, grouped, middle

__all__ = ["WHOLE", "K", "left", "middle"]  # for the template
LONG = 3
"""A variant of so many times the passes of its mode gets a curve of its own."""


def ablations(found: Sorted) -> list[Variant]:
    """The corrected mode with one of its changes taken back."""
    return [variant for variant in found.variants if variant.base.mode == "corrected"]


def taken_back(variant: Variant) -> str:
    return variant.words(mode="sigmoid read-out and cross-entropy → raw state and L1")


def worse(found: Sorted) -> list[tuple[str, str]]:
    """The share of wrong pixels that each change leaves when it is taken back."""
    return sorted(((f"{wrong_pixels(v.trials):.3g} %", taken_back(v)) for v in ablations(found)), reverse=True)


def compared(found: Sorted) -> list[tuple[str, list[Trial]]]:
    """The corrected mode, each change taken back alone, and all of them: as published. The trials of each method."""
    groups: dict[str, Sequence[Trial]] = {taken_back(variant): variant.trials for variant in ablations(found)}
    methods = ordered([trial.method for trials in groups.values() for trial in trials])

    def whole(setting: Setting | None) -> list[Trial]:
        return [trial for method in methods for trial in setting.of(method)] if setting else []

    passes = f", {found.published.setting['passes']} passes" if found.published else ""
    groups = {"nothing: corrected": whole(found.corrected), **groups, f"everything: as published{passes}": whole(found.published)}
    return [(words, of) for words, trials in groups.items() for of in grouped(trials, lambda trial: trial.method)]


def departures(found: Sorted) -> list[Variant]:
    """Single departures from the as-published setting."""
    return [v for v in found.variants if v.base.mode == "as-published" and not {"passes", "side"} & set(v.changes)]


def beside(variant: Variant, trial: Trial) -> list[list[Trial]]:
    """A trial with a departure, the same seed without it, and all seeds."""
    others = variant.base.of(trial.method, trial.config["steps"])
    return [[trial], [one for one in others if one.seed == trial.seed], others]


def ranged(trials: Sequence[Trial], key: str, scale: float, digits: int) -> str:
    found = sorted(scale * trial.result[key] for trial in trials)
    return " to ".join(dict.fromkeys(f"{value:.{digits}f}" for value in (found[0], found[-1]))) if found else "–"


def long_trials(found: Sorted) -> list[Trial]:
    """Trials of many more passes than those of their mode."""
    far = [v for v in found.variants if v.trials[0].config["passes"] >= LONG * v.base.setting["passes"]]
    return [trial for group in (*found.longer, *far) for trial in group.trials]


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
