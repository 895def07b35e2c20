"""How far each method's hypergradient is from exact BPTT's, at the first meta step and on the way of meta training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hyperopt.m1 import meta_end
from steadygrad.paper.report.hyperopt.m2 import training_end
from steadygrad.paper.report.hyperopt.trials import UNROLLED, Cell, Mode, Sorted, last_words, nearest, training_steps, way_order
from steadygrad.paper.report.panels import DOTTED, Panel, Points, draw, marked
from steadygrad.paper.report.style import ordered
from steadygrad.paper.report.trial import WHOLE, Trial, called, median

__all__ = ["last_words", "meta_end", "training_end"]  # for the template
FLOOR = 1e-3
"""Errors below are drawn here: they are as good as none, and would press the others together."""
ZERO = {"as far off as zero": DOTTED}
"""A relative error of 1."""
COSINES = (-1.08, 1.08)
Curves = dict[str, list[Points]]
Last = Callable[[Axes], object] | None
Key = tuple[int, int, str]
"""T, K (0 where there is none), method."""


@dataclass(frozen=True)
class Entry:
    """One method's hypergradient at one T and seed."""

    T: int
    seed: int
    method: str
    K: int
    last: str
    numbers: dict[str, Any]

    @property
    def key(self) -> Key:
        return self.T, self.K, self.method


def entries(mode: Mode) -> list[Entry]:
    made: list[Entry] = []
    for trial, found in ((t, e) for t in mode.errors for e in t.result["entries"] if e["method"] != "bptt"):
        method = called(found["method"])
        K = 0 if method in WHOLE else found.get("steps") or 0
        made.append(
            Entry(training_steps(trial), trial.seed, method, K, "" if method in UNROLLED else found.get("last") or "", found)
        )
    return made


def usual(mode: Mode) -> list[Entry]:
    """Of each method the entries that take the last step in its first way: all images where somebody tried that."""
    found = entries(mode)
    ways = {one.method: min((o.last for o in found if o.method == one.method), key=way_order) for one in found}
    return [one for one in found if one.last == ways[one.method]]


def middle(found: Iterable[Entry], name: str) -> float | None:
    return median(one.numbers.get(name) for one in found if name != "products" or one.numbers.get(name))


def compared_at(mode: Mode, key: Key, last: str) -> float | None:
    """The cosine to BPTT's hypergradient at this T, K and method, the last step taken this way."""
    return middle([one for one in entries(mode) if one.key == key and one.last == last], "cosine")


def in_order(keys: Iterable[Key]) -> list[Key]:
    """By T, then K, those without a K last, then the order of all our figures."""
    known = list(keys)
    methods = ordered([method for _, _, method in known])
    return sorted(known, key=lambda key: (key[0], key[1] or math.inf, methods.index(key[2])))


def errors(found: Sorted) -> list[tuple[Key, list[list[Entry]]]]:
    """At each T, K and method the entries of each mode."""
    kept = [usual(mode) for mode in found.all]
    keys = in_order({one.key for of_mode in kept for one in of_mode})
    return [(key, [[one for one in of_mode if one.key == key] for of_mode in kept]) for key in keys]


def ways(mode: Mode) -> list[tuple[Key, str, list[Entry]]]:
    """At each T, K and method with several ways to take the last step, the entries of each way."""
    groups: dict[Key, dict[str, list[Entry]]] = {}
    for one in entries(mode):
        groups.setdefault(one.key, {}).setdefault(one.last, []).append(one)
    several = in_order(key for key, found in groups.items() if len(found) > 1)
    return [(key, last, groups[key][last]) for key in several for last in sorted(groups[key], key=way_order)]


def drawn(found: Sorted) -> list[Mode]:
    return [mode for mode in found.all if mode.errors]


def over_lengths(modes: Sequence[Mode]) -> Picture:
    """Cosine and relative error over T, at one K, a column a mode."""
    columns: list[tuple[Panel, Panel]] = []
    for mode in modes:
        K = nearest({one.K for one in usual(mode) if one.K})
        kept = [one for one in usual(mode) if one.K in (0, K)]
        columns.append(column(kept, lambda one: one.T, f"{mode.title}, K = {K}", "training steps T"))
    return draw(list(zip(*columns, strict=True)), ZERO, 2.1)


def over_counts(modes: Sequence[Mode]) -> Picture:
    """Cosine and relative error over K, at the largest T, a column a mode; methods without a K are level."""
    columns: list[tuple[Panel, Panel]] = []
    for mode in modes:
        T = max(one.T for one in usual(mode))
        kept = [one for one in usual(mode) if one.T == T]
        columns.append(column(kept, lambda one: one.K, f"{mode.title}, T = {T}", "terms or steps K"))
    return draw(list(zip(*columns, strict=True)), ZERO, 2.1)


def column(found: Sequence[Entry], where: Callable[[Entry], int], title: str, x: str) -> tuple[Panel, Panel]:
    """Cosine above, relative error below: a line a method but for forward mode, which is exact."""
    places = sorted({where(one) for one in found} - {0}) or [1]
    curves: dict[str, Curves] = {"cosine": {}, "relative": {}}
    for method in (method for method in ordered([one.method for one in found]) if method != "forward"):
        for seed in sorted({one.seed for one in found if one.method == method}):
            mine = {where(one): one.numbers for one in found if (one.method, one.seed) == (method, seed)}
            for name, of in curves.items():
                of.setdefault(method, []).append((places, [mine.get(place, mine.get(0, {})).get(name) for place in places]))
    return pair(curves["cosine"], curves["relative"], title, x, last=partial(marked, places=places))


def pair(cosines: Curves, errors: Curves, title: str, x: str, last: Last = None) -> tuple[Panel, Panel]:
    """Panels of cosine and relative error."""
    floored = {method: [(at, list(map(floor, of))) for at, of in curves] for method, curves in errors.items()}
    upper = Panel(cosines, title, "", "cosine to BPTT", height=COSINES, last=last)
    return upper, Panel(floored, "", x, "relative error", plainly=True, level=1, last=last)


def floor(error: float | None) -> float | None:
    return None if error is None else max(error, FLOOR)


def referred(mode: Mode, K: int | None) -> list[Cell]:
    """The settings of this K in which a hypergradient was compared with BPTT's."""
    return [cell for cell in mode.cells if cell.K == K and any(compared(trial, "cosine") for trial in cell.trials)]


def compared(trial: Trial, name: str) -> Points | None:
    found = trial.result.get("reference")
    return (found["meta_step"], found[name]) if trial.method != "bptt" and found and found["meta_step"] else None


def on_the_way(cells: Sequence[Cell]) -> Picture:
    """Cosine and relative error over meta steps, a column a setting."""
    columns: list[tuple[Panel, Panel]] = []
    for cell in cells:
        cosines, errors = (cell.curves(lambda trial, name=name: compared(trial, name)) for name in ("cosine", "relative"))
        columns.append(pair(cosines, errors, cell.title, "meta step"))
    return draw(list(zip(*columns, strict=True)), ZERO, 1.9)


def taken(cells: Sequence[Cell]) -> set[int]:
    """The trials in which a hypergradient was compared with BPTT's."""
    return {id(trial) for cell in cells for trial in cell.trials if compared(trial, "cosine")}
