"""How the cost grows with the size of the state, the batch, the steps T and the products K, with fitted exponents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import steadygrad as sg
from benchmarks.frame import EFFORTS, Effort, Figures, Row, Rows, race, short
from benchmarks.loops import Network, by_hand, by_library

BASE = {"rows": 32, "size": 128, "T": 30, "K": 30}
SWEEPS: dict[str, Sequence[int]] = {
    "size": (16, 32, 64, 128, 256, 512, 1024),
    "rows": (1, 4, 16, 64, 256, 1024),
    "T": (10, 30, 100, 300, 1000),
    "K": (10, 30, 100, 300, 1000),
}
LATE = 3
"""The exponent is fitted to that many of the largest values: before them the fixed cost of a call bends the line."""
SHARE = 10
"""A point gets this part of the time of a race: there are many."""


def rows(effort: Effort) -> Rows:
    for axis, values in SWEEPS.items():
        fixed = ", ".join(f"{name} = {value}" for name, value in BASE.items() if name != axis)
        what = f"milliseconds of one gradient over {axis} = {values[0]}…{values[-1]}; {fixed}; fixed counts, float32"
        yield Row(axis, what, partial(measure, effort, axis, effort.pick(values, values[:2])))


def measure(effort: Effort, axis: str, values: Sequence[int]) -> Figures:
    each = Effort(effort.name, effort.seconds / SHARE, min(3, effort.least_rounds), EFFORTS["quick"].most_rounds)
    found: dict[str, list[float]] = {"by hand": [], "steadygrad": []}
    for value in values:
        setting = BASE | {axis: value}
        network = Network.random(setting["rows"], setting["size"], 0.99)  # so that no series ends by vanishing
        T, K = setting["T"], setting["K"]
        forward, gradient = sg.Picard(max_steps=T, rtol=0), sg.Implicit(sg.Neumann(steps=K))
        runs = {
            "by hand": partial(by_hand, network, T, K),
            "steadygrad": partial(by_library, network, forward=forward, gradient=gradient),
        }
        for name, times in race(runs, each).items():
            found[name].append(times["ms"])
    return {"values": list(values), "ms": found, "exponents": {name: short(exponent(values, ms)) for name, ms in found.items()}}


def exponent(values: Sequence[float], ms: Sequence[float]) -> float:
    """The slope of log ms over log value by least squares, over the last LATE points."""
    x = [math.log(value) for value in values[-LATE:]]
    y = [math.log(value) for value in ms[-LATE:]]
    middle, level = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)
