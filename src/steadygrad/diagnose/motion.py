"""Where F takes a state if it goes on: to rest, round a cycle, or away; and where it takes other starts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LONGEST_CYCLE = 16
"""Longest period looked for: that many states in memory."""
Map = Callable[[Tensor], Tensor]


def norms(h: Tensor) -> list[float]:
    """The 2-norm of each row, in double: squares of very small or large states leave the range of float32."""
    return torch.linalg.vector_norm(h.double(), dim=1).tolist()


@dataclass(frozen=True)
class Motion:
    """What F does with a state when it is applied again and again; of a batch, the problem that is worst off."""

    kind: str
    """"steady", "approaching", "cycle", "drifting", "growing" or "nonfinite"."""
    residuals: tuple[float, ...]
    """‖F(h) − h‖ / ‖F(h)‖ from the given state on, the largest of all problems."""
    period: int = 0
    """Of a cycle."""
    steps_left: float = 0.0
    """Of an approach: how many more steps it takes at the present rate."""
    moving: int = 0
    """How many problems are not steady."""


def follow(update: Map, h: Tensor, rtol: float, steps: int = 60) -> tuple[Motion, Tensor]:
    """Apply F `steps` times from h, see what happens, and return the last state too."""
    states: deque[Tensor] = deque([h], maxlen=LONGEST_CYCLE + 1)
    moves: list[list[float]] = []
    relative: list[list[float]] = []
    for _ in range(steps):
        following = update(states[-1])
        moves.append(norms(following - states[-1]))
        relative.append([m / s if s else m for m, s in zip(moves[-1], norms(following), strict=True)])
        states.append(following)
        if not all(map(math.isfinite, moves[-1])) or max(moves[-1]) == 0:
            break
    kinds = [_Row([r[i] for r in relative], [m[i] for m in moves], [s[i] for s in states]).motion(rtol) for i in range(len(h))]
    worst = min(kinds, key=lambda motion: _WORST_FIRST.index(motion.kind))
    moving = sum(motion.kind != "steady" for motion in kinds)
    trace = tuple(max(r) if all(map(math.isfinite, r)) else math.inf for r in relative)
    return Motion(worst.kind, trace, worst.period, worst.steps_left, moving), states[-1]


_WORST_FIRST = ["nonfinite", "growing", "drifting", "cycle", "approaching", "steady"]


@dataclass(frozen=True)
class _Row:
    """The trace of one problem."""

    relative: list[float]
    moves: list[float]
    states: list[Tensor]

    def motion(self, rtol: float) -> Motion:
        if not math.isfinite(self.relative[0]):
            return Motion("nonfinite", ())
        if self.relative[0] <= rtol:
            return Motion("steady", ())
        if not math.isfinite(self.moves[-1]):
            return Motion("growing", ())
        arrived = next((step for step, r in enumerate(self.relative) if r <= rtol), None)
        if arrived is not None:
            return Motion("approaching", (), steps_left=arrived)
        period = self._period()
        if period:
            return Motion("cycle", (), period=period)
        half = len(self.moves) // 2
        rate = (self.moves[-1] / self.moves[half]) ** (1 / max(1, len(self.moves) - 1 - half)) if self.moves[half] else 0.0
        if rate < 0.999:
            # The relative residual never falls on the way to zero; what counts there is the absolute one.
            ahead = max(0.0, math.log(rtol / self.relative[0]) / math.log(rate)) if rate > 0 else 1.0
            return Motion("approaching", (), steps_left=ahead)
        far = self.states[-1].norm() > 10 * self.states[0].norm() and rate > 1.001
        return Motion("growing" if far else "drifting", ())

    def _period(self) -> int:
        """The period of a cycle in the last states, 0 if there is none: the state comes back, though it moves."""
        last, move = self.states[-1], self.moves[-1]
        for period in range(2, len(self.states)):
            earlier = -1 - period * max(1, len(self.moves) // 2 // period)
            falls = move < 0.99 * self.moves[max(earlier, -len(self.moves))]
            if not falls and (last - self.states[-1 - period]).norm() < 0.01 * move:
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


def other_starts(update: Map, h: Tensor, rtol: float, generator: torch.Generator, steps: int = 200) -> tuple[Start, ...]:
    """Run F from near h, from zero and from a random state of the size of h, and compare where it comes to rest."""
    size = h.square().mean(dim=1, keepdim=True).sqrt()
    size = torch.where(size > 0, size, torch.ones_like(size))

    def noise() -> Tensor:
        return size * torch.randn(h.shape, generator=generator, dtype=h.dtype).to(h.device)

    starts = {"nearby": h + 0.1 * noise(), "zeros": torch.zeros_like(h), "random": noise()}
    return tuple(_run(name, update, start, h, rtol, steps) for name, start in starts.items())


def _run(name: str, update: Map, start: Tensor, reference: Tensor, rtol: float, steps: int) -> Start:
    h, away = start, norms(start - reference)
    settled = False
    for _ in range(steps):
        try:
            following = update(h)
        except Exception as error:  # the start is ours, not the user's: F need not be defined there
            return Start(f"{name} ({type(error).__name__} in F)", "unsettled", math.nan)
        moves, sizes = norms(following - h), norms(following)
        h = following
        if not all(map(math.isfinite, moves)):
            break
        settled = all(m <= max(0.1 * rtol * s, 1e-7 * a) for m, s, a in zip(moves, sizes, away, strict=True))
        if settled:
            break
    if not settled:
        return Start(name, "unsettled", math.nan)
    apart = zip(norms(h - reference), norms(reference), norms(h), norms(start), strict=True)
    scales = [(d, max(r, end, 0.01 * begin)) for d, r, end, begin in apart]  # a steady state at zero has no scale of its own
    distance = max(d / scale if scale > 0 else 0.0 for d, scale in scales)
    return Start(name, "same" if distance <= max(1e-2, 10 * rtol) else "other", distance)
