"""M3: what a meta step costs, BPTT's divided by Neumann-RBP's, at T = 1000 and K = 10 / 50 / 100."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steadygrad.paper.report.hyperopt.hypergradients import cosine_at
from steadygrad.paper.report.hyperopt.trials import (
    LASTS,
    WAYS,
    Mode,
    Sorted,
    last_of,
    nearest,
    steps_of,
    training_steps,
    way_order,
)
from steadygrad.paper.report.sorting import grouped
from steadygrad.paper.report.style import CHECKPOINTED, look, place
from steadygrad.paper.report.text import short
from steadygrad.paper.report.trial import Trial, median, ratio, seeds_of
from steadygrad.paper.report.verdicts import Finding, Findings, Length, Outcome

PAPER = ({10: 3.02, 50: 2.87, 100: 2.68}, {10: 4.35, 50: 4.25, 100: 4.11})
"""Ratios of time and of memory, by K."""
PAPER_T = 1000
NOISE = 0.2
"""Two measurements of the same ratio, hours apart on a shared machine, differed by up to this share."""
FLAT_RATIO, FLAT_MB = 1.25, 5.0
"""Memory is flat in T if the largest T takes at most this many times, or MB more than, the smallest."""
TIME, MEMORY = 0, 1
MEASURED = ("cpu_seconds", "memory_mb")
"""CPU seconds of a meta step, and the memory that the process takes above its libraries and data, in MB."""


@dataclass(frozen=True)
class Cost:
    """What a meta step takes by one method, at one T and K, with the last step taken in one way. Medians over trials."""

    mode: Mode
    method: str
    last: str
    T: int
    K: int
    trials: tuple[Trial, ...]

    @property
    def name(self) -> str:
        return look(self.method).label + (f", K = {self.K}, last step on {LASTS[self.last]}" if self.last else "")

    def cost(self, whose: str = "") -> list[float | None]:
        """Time and memory; whose="bptt_": BPTT's, measured in turns with the method's."""
        return [median(trial.measured.get(whose + key) for trial in self.trials) for key in MEASURED]

    @property
    def ratios(self) -> list[float | None]:
        """BPTT's divided by the method's."""
        return list(map(ratio, self.cost("bptt_"), self.cost()))

    @property
    def shares(self) -> list[float]:
        """Time and memory relative to BPTT's."""
        return [1 / value if value else math.inf for value in self.ratios]

    @property
    def cosine(self) -> float | None:
        """To BPTT's hypergradient: of the trial itself, or of those that compare hypergradients at the same T and K."""
        own = median(trial.result.get("cosine") for trial in self.trials)
        return cosine_at(self.mode, (self.T, self.K, self.method, self.last)) if own is None else own


def costs(mode: Mode) -> list[Cost]:
    """By the way to take the last step, method, T and K."""
    groups = grouped(mode.costs, lambda trial: (trial.method, last_of(trial), training_steps(trial), steps_of(trial)))
    made = [Cost(mode, of[0].method, last_of(of[0]), training_steps(of[0]), steps_of(of[0]), tuple(of)) for of in groups]
    return sorted(made, key=lambda c: (way_order(c.last or WAYS[0]), place(c.method), c.T, c.K))


def neumann(mode: Mode, last: str) -> list[Cost]:
    return [cost for cost in costs(mode) if (cost.method, cost.last) == ("neumann-rbp", last)]


def at_length(of_way: Sequence[Cost]) -> list[Cost]:
    """At T = 1000, or at the largest T that was measured."""
    lengths = {cost.T for cost in of_way}
    T = PAPER_T if PAPER_T in lengths else max(lengths, default=0)
    return [cost for cost in of_way if cost.T == T]


def compared(mode: Mode) -> list[Cost]:
    """Neumann-RBP at each K, way by way, then BPTT with checkpoints."""
    ours = [cost for last in WAYS for cost in at_length(neumann(mode, last))]
    return ours + [cost for cost in costs(mode) if cost.method in CHECKPOINTED and ours and cost.T == ours[0].T]


def judged(found: Sorted, what: int, last: str) -> Findings:
    """Are the ratios the paper's or better, within the noise? There is nothing to correct."""
    corrected = Finding(Outcome.MISSING, applicable=False)
    mode, paper = found.of("as-published"), PAPER[what]
    ours = at_length(neumann(mode, last)) if mode else []
    if not ours:
        return None, corrected
    known = {cost.K: value for cost in ours if cost.K in paper and (value := cost.ratios[what]) is not None}
    reaches = all(value >= (1 - NOISE) * paper[K] for K, value in known.items())
    outcome = Outcome.of(reaches if ours[0].T == PAPER_T and set(known) == set(paper) else None)
    seeds = seeds_of([trial for cost in ours for trial in cost.trials])
    return Finding(outcome, list(known.values()), seeds, Length(ours[0].T, PAPER_T, "training steps")), corrected


def flat(found: Sorted, last: str) -> str:
    """Whether Neumann-RBP's memory grows with T."""
    mode = found.of("as-published")
    ours = neumann(mode, last) if mode else []
    K = nearest(cost.K for cost in ours)
    taken = {cost.T: memory for cost in ours if cost.K == K and (memory := cost.cost()[MEMORY]) is not None}
    if len(taken) < 2:
        return ""
    (shortest, small), (longest, large) = min(taken.items()), max(taken.items())
    words = "Flat" if large <= max(FLAT_RATIO * small, small + FLAT_MB) else "Not flat"
    return f"{words} in T: {short(small)} MB at {shortest}, {short(large)} at {longest}."


def rounded(value: float | None) -> str:
    if value is None or math.isinf(value):
        return short(value)
    return f"{value:.2f}" if value < 10 else short(float(f"{value:.2g}"))


def little_memory(mode: Mode) -> list[tuple[Cost, list[Cost]]]:
    """The exact hypergradient in little memory, then each way of Neumann-RBP at one K with the exact ones that beat it: they
    take no more memory, and no more time within the noise of the measurement. Nothing where no exact one was measured."""
    exact = [cost for cost in compared(mode) if cost.method in CHECKPOINTED]
    ours = [cost for cost in compared(mode) if nearest(c.K for c in compared(mode) if c.last == cost.last) == cost.K]

    def beats(one: Cost, other: Cost) -> bool:
        (time, memory), (its_time, its_memory) = one.shares, other.shares
        return memory <= its_memory and time <= (1 + NOISE) * its_time

    rows = [*((one, []) for one in exact), *((one, [other for other in exact if beats(other, one)]) for one in ours if one.last)]
    return rows if exact else []
