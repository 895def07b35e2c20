"""Where F takes a state if it goes on: to rest, round a cycle, or away; and where it takes other starts."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.diagnose.scale import Map, Scale

LONGEST_CYCLE = 16
"""Longest period looked for: that many states in memory."""
SAME = 0.01
"""A state that comes back to within this share of a step has closed a cycle."""
FALLING = 0.99
"""Steps that shrink by more than this over a cycle spiral inwards."""
APPROACH = 0.999
"""A factor a step below which the steps shrink: over the 30 steps of the later half 3 %, beyond what rounding does."""
GROWTH, FAR = 1.001, 10
"""A factor a step above which steps grow, and the factor of the state beyond which it has left."""


@dataclass(frozen=True)
class Motion:
    """What F does with a state when it is applied again and again; of a batch, the problem that is worst off."""

    kind: str
    """"steady", "approaching", "cycle", "drifting", "growing" or "nonfinite"."""
    residuals: tuple[float, ...]
    """‖F(h) − h‖ / ‖F(h)‖ from the given state on, the largest of all problems."""
    period: int = 0
    """How many steps a cycle takes; 0 where there is none."""
    steps_left: float = 0.0
    """How many more steps an approach takes at the present rate."""
    moving: int = 0
    """How many problems are not steady."""


def follow(update: Map, h: Tensor, rtol: float, scale: Scale, steps: int) -> tuple[Motion, Tensor]:
    """Apply F `steps` times from h, see what happens, and return the last state too."""
    states: deque[Tensor] = deque([h], maxlen=LONGEST_CYCLE + 1)
    moves: list[list[float]] = []
    relative: list[list[float]] = []
    sizes: Tensor | None = None
    for _ in range(steps):
        following = update(states[-1])
        if sizes is None:  # of the first image, so that moves can be compared with each other
            sizes = torch.maximum(scale.sizes(following), scale.sizes(h))
        change = following - states[-1]
        moves.append(scale.worst(change, sizes))
        relative.append(scale.relative(change, following))
        states.append(following)
        if not all(map(math.isfinite, moves[-1])) or max(moves[-1]) == 0:
            break
    assert sizes is not None, "at least one step"
    last = states[-1]
    returns = [scale.worst(last - states[-1 - period], sizes) for period in range(2, len(states))]
    left = scale.worst(last, sizes)
    kinds = [
        _judged([r[i] for r in relative], [m[i] for m in moves], [apart[i] for apart in returns], left[i], rtol)
        for i in range(len(h))
    ]
    worst = min(kinds, key=lambda motion: _WORST_FIRST.index(motion.kind))
    moving = sum(motion.kind != "steady" for motion in kinds)
    trace = tuple(max(r) if all(map(math.isfinite, r)) else math.inf for r in relative)
    return Motion(worst.kind, trace, worst.period, worst.steps_left, moving), last


_WORST_FIRST = ["nonfinite", "growing", "drifting", "cycle", "approaching", "steady"]


def _judged(relative: list[float], moves: list[float], returns: list[float], size: float, rtol: float) -> Motion:
    """The motion of one problem.

    `relative` is each step beside the state that it led to, `moves` beside the first state, `returns` how far the last state
    is from that of two, three, … steps before, and `size` its own, both beside the first state.
    """
    if not math.isfinite(relative[0]):
        return Motion("nonfinite", ())
    if relative[0] <= rtol:
        return Motion("steady", ())
    if not math.isfinite(moves[-1]):
        return Motion("growing", ())
    arrived = next((step for step, r in enumerate(relative) if r <= rtol), None)
    if arrived is not None:
        return Motion("approaching", (), steps_left=arrived)
    period = _period(moves, returns)
    if period:
        return Motion("cycle", (), period=period)
    half = len(moves) // 2
    rate = (moves[-1] / moves[half]) ** (1 / max(1, len(moves) - 1 - half)) if moves[half] else 0.0
    if rate < APPROACH:
        # The relative residual never falls on the way to zero; what counts there is the absolute one.
        ahead = max(0.0, math.log(rtol / relative[0]) / math.log(rate)) if rate > 0 else 1.0
        return Motion("approaching", (), steps_left=ahead)
    return Motion("growing" if size > FAR and rate > GROWTH else "drifting", ())


def _period(moves: list[float], returns: list[float]) -> int:
    """The period of a cycle in the last states, 0 if there is none: the state comes back, though it moves."""
    for period, apart in enumerate(returns, start=2):
        earlier = -1 - period * max(1, len(moves) // 2 // period)
        falls = moves[-1] < FALLING * moves[max(earlier, -len(moves))]
        if not falls and apart < SAME * moves[-1]:
            return period
    return 0


@dataclass(frozen=True)
class Start:
    """Where F came to rest from another start."""

    name: str
    outcome: str
    """"same", "other", or "unsettled"; of a batch, what holds for its worst problem."""
    distance: float
    """Relative distance between the two states, the largest of all problems."""


RUN = 200
"""Steps that a run from another start may take to come to rest."""
NEARBY = 0.1
"""How far the start nearby is, relative to the state."""
ARRIVED = 1e-7
"""A step so small beside the way that was come is rest: a state of zero has no other measure."""
CLOSER = 0.1
"""The share of rtol to which a run from another start goes, so that its end is better known than what it is compared with."""
ALIKE, TOLERANCES = 1e-2, 10
"""Two ends are the same steady state up to this relative distance, or up to so many rtol where that is more."""
FAINT = 0.01
"""The share of the start that an end has as its size at least: a steady state at zero has none of its own."""


def other_starts(update: Map, h: Tensor, rtol: float, scale: Scale, generator: torch.Generator) -> tuple[Start, ...]:
    """Run F from near h, from zero and from a random state of the size of h, and compare where it comes to rest."""
    nearby, random = (scale.direction(h, generator) for _ in range(2))
    starts = {"nearby": h + NEARBY * nearby, "zeros": torch.zeros_like(h), "random": random}
    return tuple(_run(name, update, start, h, rtol, scale) for name, start in starts.items())


def _run(name: str, update: Map, start: Tensor, reference: Tensor, rtol: float, scale: Scale) -> Start:
    h, way = start, scale.sizes(start - reference)
    settled = False
    for _ in range(RUN):
        try:
            following = update(h)
        except Exception as error:  # the start is ours, not the user's: F need not be defined there
            return Start(f"{name} ({type(error).__name__} in F)", "unsettled", math.nan)
        change = following - h
        moves = zip(scale.relative(change, following), scale.worst(change, way), strict=True)
        h = following
        if not h.isfinite().all():
            break
        settled = all(relative <= CLOSER * rtol or rest <= ARRIVED for relative, rest in moves)
        if settled:
            break
    if not settled:
        return Start(name, "unsettled", math.nan)
    sizes = torch.maximum(scale.sizes(reference), torch.maximum(scale.sizes(h), FAINT * scale.sizes(start)))
    distance = max(scale.worst(h - reference, sizes))
    return Start(name, "same" if distance <= max(ALIKE, TOLERANCES * rtol) else "other", distance)
