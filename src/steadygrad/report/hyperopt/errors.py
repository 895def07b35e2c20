"""How far each method's hypergradient is from exact BPTT's at the first meta step, over T and K."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.report.hyperopt.panels import ZERO, Points, floored, line, logarithmic, marked, zeros_shown
from steadygrad.report.hyperopt.trials import UNROLLED, WHOLE, Mode, Sorted, Trial, last_words, median, nearest, way_order
from steadygrad.report.panels import DOTTED, grid, legend
from steadygrad.report.section import Table
from steadygrad.report.style import METHODS, look, ordered
from steadygrad.report.text import short

Where = Callable[["Entry"], int]
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
    return [entry(trial, found) for trial in mode.errors for found in trial.result["entries"] if found["method"] != "bptt"]


def entry(trial: Trial, found: dict[str, Any]) -> Entry:
    K = 0 if found["method"] in WHOLE else found.get("steps") or 0
    last = "" if found["method"] in UNROLLED else found.get("last") or ""
    return Entry(trial.length, trial.seed, found["method"], K, last, found)


def drawn(mode: Mode) -> list[Entry]:
    """Without forward mode, which is exact."""
    return [one for one in usual(entries(mode)) if one.method != "forward"]


def usual(found: Sequence[Entry]) -> list[Entry]:
    """Of each method the entries that take the last step in its first way: all images where somebody tried that."""
    best: dict[str, str] = {}
    for one in found:
        best[one.method] = min(best.get(one.method, one.last), one.last, key=way_order)
    return [one for one in found if one.last == best[one.method]]


def middle(found: Sequence[Entry], name: str) -> float | None:
    return median(one.numbers.get(name) for one in found if name != "products" or one.numbers.get(name))


def table(found: Sorted) -> Table:
    """A row a T, K and method; the modes side by side."""
    kept = [usual(entries(mode)) for mode in found.all]
    keys = {one.key for of_mode in kept for one in of_mode}
    rows: list[tuple[str, ...]] = []
    for T, K, method in sorted(keys, key=in_order):
        matching = [[one for one in of_mode if one.key == (T, K, method)] for of_mode in kept]
        numbers = [short(middle(of_mode, name)) for of_mode in matching for name in ("cosine", "relative")]
        rows.append((look(method).label, str(T), str(K) if K else "–", *numbers))
    heads = [f"{name}, {mode.title.lower()}" for mode in found.all for name in ("cosine", "rel. error")]
    return Table(
        "Hypergradients at the first meta step against exact BPTT through all T steps.",
        ("method", "T", "K", *heads),
        tuple(rows),
        "Cosine of the angle to BPTT's hypergradient, and ‖g − g_BPTT‖ / ‖g_BPTT‖ (1: as far off as no gradient at all). As "
        "published for log learning rates and momentum logits, which do not move the point at which SGD rests; corrected for log "
        "weight decays, which do. Medians over seeds; implicit methods with the last step on all images where that was tried.",
        "hyperopt-errors-table",
    )


def in_order(key: Key) -> tuple[int, float, int]:
    """By T, then K, those without a K last, then the order of all our figures."""
    T, K, method = key
    known = list(METHODS)
    return T, K or math.inf, known.index(method) if method in known else len(known)


def ways(found: Sorted) -> Table | None:
    """The ways to take the last step beside each other; None where only one was tried."""
    rows: list[tuple[str, ...]] = []
    for mode in found.all:
        groups: dict[tuple[Key, str], list[Entry]] = {}
        for one in entries(mode):
            groups.setdefault((one.key, one.last), []).append(one)
        several = {key for key, _ in groups if len({last for other, last in groups if other == key}) > 1}
        for (key, last), group in sorted(groups.items(), key=lambda item: (in_order(item[0][0]), way_order(item[0][1]))):
            if key in several:
                T, K, method = key
                numbers = [short(middle(group, name)) for name in ("cosine", "relative", "noise", "products")]
                rows.append((mode.title, str(T), str(K) if K else "–", look(method).label, last_words(mode.name, last), *numbers))
    if not rows:
        return None
    return Table(
        "On which data an implicit method takes the last step.",
        ("mode", "T", "K", "method", "last step on", "cosine", "rel. error", "noise", "products"),
        tuple(rows),
        "Noise: standard deviation of the estimate over mini-batches relative to its norm; none with all images. Products: with "
        "Jᵀ, each a mini-batch or all images. Medians over seeds.",
    )


def over_length(modes: Sequence[Mode]) -> Picture:
    """Cosine and relative error over T, at one K, a column a mode."""
    picture, rows = grid(2, len(modes), 2.1)
    for place, mode in enumerate(modes):
        found = drawn(mode)
        K = nearest({one.K for one in found if one.K})
        kept = [one for one in found if one.K in (0, K)]
        axes, places = [row[place] for row in rows], sorted({one.T for one in found})
        panel(axes, kept, places, lambda one: one.T)
        dress(axes, f"{mode.title}, K = {K}", "training steps T", places)
    legend(picture, rows, **{ZERO: DOTTED})
    return picture


def over_count(modes: Sequence[Mode]) -> Picture:
    """Cosine and relative error over K, at the largest T, a column a mode; methods without a K are level."""
    picture, rows = grid(2, len(modes), 2.1)
    for place, mode in enumerate(modes):
        found = drawn(mode)
        T = max(one.T for one in found)
        kept = [one for one in found if one.T == T]
        axes, places = [row[place] for row in rows], sorted({one.K for one in kept if one.K}) or [1]
        panel(axes, kept, places, lambda one: one.K)
        dress(axes, f"{mode.title}, T = {T}", "terms or steps K", places)
    legend(picture, rows, **{ZERO: DOTTED})
    return picture


def panel(axes: Sequence[Axes], found: Sequence[Entry], places: Sequence[int], where: Where) -> None:
    """A line a method: the median over seeds at each place, the band from the lowest to the highest."""
    methods = ordered([one.method for one in found])
    for axis, name in zip(axes, ("cosine", "relative"), strict=True):
        for order, method in enumerate(methods):
            of_method = [one for one in found if one.method == method]
            curves = [points(of_method, seed, name, places, where) for seed in sorted({one.seed for one in of_method})]
            line(axis, method, curves, order, len(methods))


def points(found: Sequence[Entry], seed: int, name: str, places: Sequence[int], where: Where) -> Points:
    numbers = {where(one): one.numbers.get(name) for one in found if one.seed == seed}
    values = [numbers.get(place, numbers.get(0)) for place in places]
    return places, zeros_shown(values) if name == "cosine" else floored(values)


def dress(axes: Sequence[Axes], title: str, xlabel: str, places: Sequence[int]) -> None:
    cosine, relative = axes
    relative.axhline(1, **DOTTED)
    cosine.set(title=title, ylabel="cosine to BPTT", ylim=(-1.08, 1.08))
    relative.set(xlabel=xlabel, ylabel="relative error")
    logarithmic(relative)
    for axis in axes:
        marked(axis, places)
