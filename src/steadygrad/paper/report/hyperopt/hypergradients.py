"""How far each method's hypergradient is from exact BPTT's, at the first meta step; and departures from the released code."""

from __future__ import annotations

import math

from steadygrad.paper.report.fidelity import Departure
from steadygrad.paper.report.hyperopt.m1 import meta_end
from steadygrad.paper.report.hyperopt.m2 import training_end
from steadygrad.paper.report.hyperopt.trials import LASTS, Mode, Sorted, last_of
from steadygrad.paper.report.style import place
from steadygrad.paper.report.trial import Trial

__all__ = ["meta_end", "training_end"]  # for the template
Key = tuple[int, int, str, str]
"""T, K (0 where there is none), method, and on what it takes the last step."""


def entries(mode: Mode) -> list[Trial]:
    """Every hypergradient that was compared with BPTT's at the first meta step, as a trial of its own."""
    told = ("method", "steps", "last")
    compared = [(trial, found) for trial in mode.errors for found in trial.result["entries"] if found["method"] != "bptt"]
    return [Trial({**trial.config, **{name: found.get(name) for name in told}}, found, {}) for trial, found in compared]


def key(entry: Trial) -> Key:
    return entry.T, entry.K, entry.method, last_of(entry)


def errors(found: Sorted) -> list[tuple[Key, list[list[Trial]]]]:
    """At each T, K (those without one last), method and last step the entries of each mode."""

    def order(where: Key) -> tuple[float, ...]:
        T, K, method, last = where
        return T, K or math.inf, place(method), list(LASTS).index(last)

    all_of = [entries(mode) for mode in found.all]
    keys = sorted({key(one) for of_mode in all_of for one in of_mode}, key=order)
    return [(where, [[one for one in of_mode if key(one) == where] for of_mode in all_of]) for where in keys]


def reshuffled(found: Sorted) -> list[Departure]:
    """Trials that draw their mini-batches anew, each in the settings of its T and K."""
    return [
        Departure(cell.title if trial.K else f"T = {cell.T}", cell, trial)
        for mode in found.tuned
        for trial in mode.reshuffled
        for cell in mode.cells
        if trial.T == cell.T and cell.K in (0, trial.config["steps"])
    ]
