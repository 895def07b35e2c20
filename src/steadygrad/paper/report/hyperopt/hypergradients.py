"""How far each method's hypergradient is from exact BPTT's, at the first meta step and on the way; and the settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report import generic
from steadygrad.paper.report.hyperopt.trials import (
    FREE,
    UNROLLED,
    WHOLE,
    Cell,
    HyperoptTrial,
    Mode,
    Sorted,
    curves,
    last_words,
    nearest,
    way_order,
)
from steadygrad.paper.report.panels import BANDS, DOTTED, Points, grid, legend, line, lines, logarithmic, marked
from steadygrad.paper.report.section import Figure, Table
from steadygrad.paper.report.style import METHODS, look, ordered
from steadygrad.paper.report.text import number, plural, short
from steadygrad.paper.report.trial import called, median, seeds_of

ZERO = "as far off as zero"
"""A relative error of 1."""
FLOOR = 1e-3
"""Errors below are drawn here: they are as good as none, and would press the others together."""
FLOORED = f"Errors below {FLOOR:g} are drawn there."
TINY = 1e-300
"""Stands for zero, which `stacked` takes for something that was not measured, on an axis that can show it."""

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


def entry(trial: HyperoptTrial, found: dict[str, Any]) -> Entry:
    method = called(found["method"])
    K = 0 if method in WHOLE else found.get("steps") or 0
    last = "" if method in UNROLLED else found.get("last") or ""
    return Entry(trial.length, trial.seed, method, K, last, found)


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


def compared_at(mode: Mode, key: Key, last: str) -> float | None:
    """The cosine to BPTT's hypergradient at this T, K and method, the last step taken this way."""
    return middle([one for one in entries(mode) if one.key == key and one.last == last], "cosine")


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
        "hyperopt-errors-table",
        f"Hypergradients at the first meta step against exact BPTT through all T steps ({seeds_words(found)}).",
        ("method", "T", "K", *heads),
        tuple(rows),
        "Cosine of the angle to BPTT's hypergradient, and ‖g − g_BPTT‖ / ‖g_BPTT‖ (1: as far off as no gradient at all). As "
        "published for log learning rates and momentum logits, which do not move the point at which SGD rests; corrected for log "
        "weight decays, which do. Medians over seeds, where there are several; implicit methods with the last step on all images "
        "where that was tried.",
    )


def seeds_words(found: Sorted) -> str:
    """ "as published: 1 seed; corrected: 2 seeds" """
    return "; ".join(f"{mode.title.lower()}: {plural(seeds_of(mode.errors), 'seed')}" for mode in found.all)


def in_order(key: Key) -> tuple[int, float, int]:
    """By T, then K, those without a K last, then the order of all our figures."""
    T, K, method = key
    known = list(METHODS)
    return T, K or math.inf, known.index(method) if method in known else len(known)


def ways(found: Sorted) -> Table:
    """The ways to take the last step beside each other."""
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
    return Table(
        "hyperopt-errors-ways",
        "On which data an implicit method takes the last step.",
        ("mode", "T", "K", "method", "last step on", "cosine", "rel. error", "noise", "products"),
        tuple(rows),
        "Noise: standard deviation of the estimate over mini-batches relative to its norm; none with all images. Products: with "
        "Jᵀ, each a mini-batch or all images. Medians over seeds, where there are several.",
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


def zeros_shown(values: Sequence[float | None]) -> list[float | None]:
    return [TINY if value == 0 else value for value in values]


def floored(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else max(value, FLOOR) for value in values]


def figures(found: Sorted) -> list[Figure]:
    """Over T and K at the first meta step, then on the way of meta training."""
    modes = [mode for mode in found.all if drawn(mode)]
    made: list[Figure] = []
    if modes:
        names = " and ".join(mode.title.lower() for mode in modes)
        about = f"of each method's hypergradient at the first meta step against exact BPTT, {names}. {FLOORED} {BANDS}"
        alt, count = f"Lines of each method, {names}; the numbers are in the table.", sum(len(mode.errors) for mode in modes)
        made = [
            Figure("hyperopt-errors-length", f"Cosine and error over T, {about}", alt, partial(over_length, modes), count),
            Figure("hyperopt-errors-count", f"Cosine and error over K, {about}", alt, partial(over_count, modes), count),
        ]
    return made + [on_the_way(mode, K) for mode in found.tuned for K in mode.counts if referred(mode, K)]


def on_the_way(mode: Mode, K: int | None) -> Figure:
    cells = referred(mode, K)
    return Figure(
        f"hyperopt-errors-way-{mode.name}-{K or 'whole'}",
        f"{mode.title}{f', K = {K}' if K else ''}: each method's hypergradient against exact BPTT at the same hyperparameters, "
        f"through meta training. Above: cosine, 1 is right; below: relative error, 1 is as far off as zero. {FLOORED} {BANDS}",
        f"Cosine and relative error over meta steps in panels: {', '.join(cell.title for cell in cells)}.",
        partial(draw_way, mode, K),
        len({id(trial) for cell in cells for trial in cell.trials if compared(trial, "cosine")}),
    )


def referred(mode: Mode, K: int | None) -> list[Cell]:
    """The settings of this K in which a hypergradient was compared with BPTT's."""
    return [c for c in mode.cells if c.K == K and any(compared(trial, "cosine") for trial in c.trials)]


def compared(trial: HyperoptTrial, what: str) -> Points | None:
    found = trial.result.get("reference")
    if trial.method == "bptt" or not found or not found["meta_step"]:
        return None
    return found["meta_step"], zeros_shown(found[what]) if what == "cosine" else floored(found[what])


def draw_way(mode: Mode, K: int | None) -> Picture:
    cells = referred(mode, K)
    picture, (upper, lower) = grid(2, len(cells), 1.9)
    for cell, cosine, relative in zip(cells, upper, lower, strict=True):
        lines(cosine, curves(cell, lambda trial: compared(trial, "cosine"), "bptt"))
        lines(relative, curves(cell, lambda trial: compared(trial, "relative"), "bptt"))
        relative.axhline(1, **DOTTED)
        cosine.set(title=cell.title, ylim=(-1.08, 1.08))
        relative.set(xlabel="meta step")
        logarithmic(relative)
    upper[0].set_ylabel("cosine to BPTT")
    lower[0].set_ylabel("relative error")
    legend(picture, [upper, lower], **{ZERO: DOTTED})
    return picture


def numbers(found: Sorted) -> dict[str, Any]:
    """Where hyperparameters do not move the steady state, and how far the last step still moves."""
    degenerate = [
        (
            mode.title.lower(),
            sum(bool(trial.result.get("degenerate")) for trial in implicit),
            len(implicit),
            sorted({name for trial in implicit for name in trial.result.get("degenerate") or {}}),
        )
        for mode in found.tuned
        if (implicit := [trial for trial in mode.tuned if trial.method not in UNROLLED])
    ]
    moves = [
        (mode.title, [(T, median(t.result.get("movement") for t in mode.errors if t.length == T)) for T in lengths])
        for mode in found.all
        if (lengths := sorted({trial.length for trial in mode.errors}))
    ]
    return {"degenerate": degenerate, "moves": moves}


def settings(found: Sorted) -> Table:
    """The settings of both modes side by side."""
    configs = [next((trial.config for trial in (*mode.tuned, *mode.errors, *mode.costs)), {}) for mode in found.all]
    names = [name for name in generic.keys(configs) if name not in FREE]
    rows = [(name, *(generic.cell(config.get(name)) for config in configs)) for name in names]
    rows += [("T", *(listed(mode.lengths) for mode in found.all)), ("K", *(listed(mode.counts) for mode in found.all))]
    rows += [("meta steps", *(listed(sorted({cell.meta_steps for cell in mode.cells})) for mode in found.all))]
    shuffled = [{trial.config["shuffle"] for trial in mode.tuned} for mode in found.all]
    rows += [("mini-batches drawn anew", *(" and ".join(number(value) for value in sorted(of)) or "–" for of in shuffled))]
    rows += [("seeds of tuning", *(str(seeds_of(mode.tuned)) for mode in found.all))]
    rows += [("trials not shown: other settings or seeds", *(str(mode.left_out) for mode in found.all))]
    return Table("hyperopt-settings", "Settings of the modes.", ("setting", *(m.title.lower() for m in found.all)), tuple(rows))


def listed(values: Sequence[int | None]) -> str:
    return ", ".join(str(value) for value in values if value is not None) or "–"
