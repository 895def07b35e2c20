"""M3: what a meta step costs, BPTT's divided by Neumann-RBP's, at T = 1000 and K = 10 / 50 / 100."""

from __future__ import annotations

import math

from steadygrad.paper.report.hyperopt.hypergradients import entries, key
from steadygrad.paper.report.hyperopt.trials import LASTS, WAYS, Mode, Sorted, last_of, nearest
from steadygrad.paper.report.style import CHECKPOINTED, place
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


def cost(trial: Trial, whose: str = "") -> list[float | None]:
    """Time and memory of a meta step; whose="bptt_": BPTT's, measured in turns with the method's."""
    return [trial.measured.get(whose + key) for key in MEASURED]


def ratios(trial: Trial) -> list[float | None]:
    """BPTT's divided by the method's."""
    return list(map(ratio, cost(trial, "bptt_"), cost(trial)))


def shares(trial: Trial) -> list[float]:
    """Time and memory relative to BPTT's."""
    return [1 / value if value else math.inf for value in ratios(trial)]


def cosine(mode: Mode, trial: Trial) -> float | None:
    """To BPTT's hypergradient: as the trial has it, or those that compare hypergradients at the same T and K."""
    return trial.result.get("cosine") or median(one.result["cosine"] for one in entries(mode) if key(one) == key(trial))


def in_order(mode: Mode) -> list[Trial]:
    """By the way to take the last step, method, T and K."""

    def order(trial: Trial) -> tuple[int, ...]:
        return list(LASTS).index(last_of(trial) or WAYS[0]), place(trial.method), trial.T, trial.K

    return sorted(mode.costs, key=order)


def neumann(mode: Mode | None, last: str) -> list[Trial]:
    """Neumann-RBP's costs, the last step taken this way."""
    found = in_order(mode) if mode else []
    return [trial for trial in found if (trial.method, last_of(trial)) == ("neumann-rbp", last)]


def at_length(mode: Mode | None, last: str) -> list[Trial]:
    """The same at T = 1000, or at the largest T that was measured."""
    found = neumann(mode, last)
    lengths = {trial.T for trial in found}
    T = PAPER_T if PAPER_T in lengths else max(lengths, default=0)
    return [trial for trial in found if trial.T == T]


def judged(found: Sorted, what: int, last: str) -> Findings:
    """Are the ratios the paper's or better, within the noise? There is nothing to correct."""
    corrected = Finding(applicable=False)
    ours, paper = at_length(found.of("as-published"), last), PAPER[what]
    if not ours:
        return Finding(), corrected
    known = {t.K: value for t in ours if t.K in paper and (value := ratios(t)[what]) is not None}
    reaches = all(value >= (1 - NOISE) * paper[K] for K, value in known.items())
    T = ours[0].T
    outcome = Outcome.of(reaches if T == PAPER_T and set(known) == set(paper) else None)
    return Finding(outcome, list(known.values()), seeds_of(ours), Length(T, PAPER_T, "training steps")), corrected


def memory_over(found: Sorted, last: str) -> list[tuple[int, float]]:
    """Neumann-RBP's memory at each T, the shortest first."""
    ours = neumann(found.of("as-published"), last)
    K = nearest(trial.K for trial in ours)
    return sorted((t.T, memory) for t in ours if t.K == K and (memory := cost(t)[MEMORY]) is not None)


def rounded(value: float | None) -> str:
    if value is None or math.isinf(value):
        return short(value)
    return f"{value:.2f}" if value < 10 else short(float(f"{value:.2g}"))


def exact_ones(mode: Mode) -> list[Trial]:
    """The exact hypergradient in little memory."""
    return [trial for trial in in_order(mode) if trial.method in CHECKPOINTED]


def ours_beside(mode: Mode) -> dict[str, Trial]:
    """Neumann-RBP at one K, by each way to take the last step that was measured."""
    found = {last: at_length(mode, last) for last in WAYS}
    return {last: t for last, of in found.items() for t in of if nearest(one.K for one in of) == t.K}


def beats(exact: Trial, ours: Trial) -> bool:
    """Takes the exact one no more memory, and no more time within the noise of the measurement?"""
    (time, memory), (our_time, our_memory) = shares(exact), shares(ours)
    return memory <= our_memory and time <= (1 + NOISE) * our_time
