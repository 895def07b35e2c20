"""What every benchmark is made of: rows, the race that times several ways side by side, and the effort that is put in."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

Figures = dict[str, Any]
"""What a row found: names with numbers, words, lists or further names, as JSON has them."""


@dataclass(frozen=True)
class Effort:
    """How much time is put into a row."""

    name: str
    seconds: float
    """of one race, warm-up included; the least rounds are taken in any case"""
    least_rounds: int
    most_rounds: int

    @property
    def tiny(self) -> bool:
        """Whether this is only to see that the code runs: rows then take small sizes."""
        return self.name == "tiny"

    def pick(self, full: Any, tiny: Any) -> Any:
        """A size or count of a row: `full`, unless the effort is tiny."""
        return tiny if self.tiny else full


EFFORTS = {effort.name: effort for effort in (Effort("full", 4.0, 5, 60), Effort("quick", 0.5, 2, 10), Effort("tiny", 0.0, 1, 1))}
"""full: for the record; quick: to see figures; tiny: for the tests."""


@dataclass(frozen=True)
class Row:
    """One line of a benchmark, measured when it is run."""

    name: str
    what: str
    """What was measured, in a sentence: sizes, dtype, tolerances."""
    run: Callable[[], Figures]


Rows = Iterator[Row]

TURN = 10.0
"""Milliseconds of a turn in a race, about; at least one call."""
PROCESSES = 3
"""In which a library is measured."""
MOST_CALLS = 20
"""Calls in a turn, at most."""


def race(runs: Mapping[str, Callable[[], object]], effort: Effort, drop_slower_than: float | None = None) -> dict[str, Figures]:
    """Time several ways of doing the same in rounds that take turns, so that a busy machine disturbs all alike.

    A turn is a few calls running, as a training makes them, of which the mean is taken: a single call would find the caches full
    of the others' code. The first of `runs` is the reference: `ratio` is the median over rounds of the time over the reference's
    time in that round, with its quartiles. Each round starts with another run. Two calls more are taken to warm up; with
    `drop_slower_than`, who took that many times the fastest in the first is not run again, and that one time is what is known.
    """
    names = list(runs)
    reference = names[0]
    first = {name: _milliseconds(runs[name]) for name in names}
    limit = float("inf") if drop_slower_than is None else drop_slower_than * min(first.values())
    staying = [name for name in names if first[name] <= limit or name == reference]
    taken: dict[str, list[float]] = {name: [] for name in staying}
    calls = {name: _calls_in_a_turn(runs[name]) if effort.seconds else 1 for name in staying}
    gc.collect()
    gc.freeze()  # what was there before is not looked through again in the middle of a measurement
    started = time.perf_counter()
    for number in range(effort.most_rounds):
        if number >= effort.least_rounds and time.perf_counter() - started > effort.seconds:
            break
        turn = number % len(staying)
        for name in staying[turn:] + staying[:turn]:
            taken[name].append(_milliseconds(runs[name], calls[name]))
    gc.unfreeze()
    return {name: _summary(taken.get(name) or [first[name]], taken[reference]) for name in names}


def _calls_in_a_turn(run: Callable[[], object]) -> int:
    """By a second call, since the first may have waited for a compiler."""
    return min(max(1, round(TURN / _milliseconds(run))), MOST_CALLS)


def _milliseconds(run: Callable[[], object], calls: int = 1) -> float:
    """The mean of so many calls running."""
    started = time.perf_counter()
    for _ in range(calls):
        run()
    return 1000 * (time.perf_counter() - started) / calls


def _summary(times: list[float], reference: list[float]) -> Figures:
    """Median in milliseconds and ratio to the reference, round by round; a run that was dropped has one time only."""
    if len(times) == len(reference):
        ratios = [time / other for time, other in zip(times, reference, strict=True)]
    else:
        ratios = [times[0] / statistics.median(reference)]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return {
        "ms": short(statistics.median(times)),
        "ratio": short(statistics.median(ratios)),
        "quartiles": [short(low), short(high)],
        "rounds": len(times),
    }


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of function(*arguments), run in a process of its own that has done nothing else before."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def apart(measure: Callable[..., Figures], groups: Sequence[str], effort: Effort, *setting: Any) -> Figures:
    """measure(effort, group, *setting) of each group of ways in a process of its own, in one set of figures.

    So each library is measured as its users have it, and not beside others whose threads, code and objects are in the way: JAX
    in the process makes what is Python in torch's libraries a tenth slower. Each group has the reference among its ways, and its
    ratios are taken in turns with that; what several groups have measured is shown of the first. One process may be a tenth
    slower than the next for as long as it lives: of several, the one in the middle counts.
    """
    found: Figures = {}
    for group in groups:
        # Tests only see that everything runs, and a new process takes seconds to import torch.
        if effort.tiny:
            figures = measure(effort, group, *setting)
        else:
            some = replace(effort, seconds=effort.seconds / 2)
            figures = middle([in_fresh_process(measure, some, group, *setting) for _ in range(PROCESSES)])
        for name, values in figures.items():
            known = found.setdefault(name, {})
            known |= {way: value for way, value in values.items() if way not in known}
    return found


def middle(found: list[Figures]) -> Figures:
    """The times of each way in the process in which its ratio was in the middle, with the lowest and highest of all; besides, the
    first."""

    def of(way: str) -> Figures:
        ranked = sorted((figures["times"][way] for figures in found if way in figures["times"]), key=lambda times: times["ratio"])
        return ranked[len(ranked) // 2] | {"ratios": [ranked[0]["ratio"], ranked[-1]["ratio"]]}

    return found[0] | {"times": {way: of(way) for way in found[0]["times"]}}


def short(value: float) -> float:
    """Four significant digits: more is noise."""
    return float(f"{value:.4g}")
