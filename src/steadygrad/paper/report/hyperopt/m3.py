"""M3: what a meta step costs, BPTT's divided by Neumann-RBP's, at T = 1000 and K = 10 / 50 / 100."""

from __future__ import annotations

import math
from functools import partial

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hyperopt.costs import PAPER_T, Way, ways
from steadygrad.paper.report.hyperopt.trials import (
    PAPER_K,
    UNROLLED,
    Sorted,
    last_words,
    nearest,
    steps_of,
)
from steadygrad.paper.report.panels import Panel, draw, marked
from steadygrad.paper.report.section import Finding, Findings
from steadygrad.paper.report.style import CHECKPOINTED, look
from steadygrad.paper.report.text import short
from steadygrad.paper.report.verdicts import Outcome

__all__ = ["last_words"]  # for the template
PAPER = ({10: 3.02, 50: 2.87, 100: 2.68}, {10: 4.35, 50: 4.25, 100: 4.11})
"""Ratios of time and of memory, by K."""
NOISE = 0.2
"""Two measurements of the same ratio, hours apart on a shared machine, differed by up to this share."""
FLAT_RATIO, FLAT_MB = 1.25, 5.0
"""Memory is flat in T if the largest T takes at most this many times, or MB more than, the smallest."""
SHORTLY = {"full": "all images", "average": "averaged batches", "step": "one mini-batch", "fresh": "fresh batches"}
TIME, MEMORY = 0, 1


def judged(found: Sorted, what: int, last: str) -> Findings:
    """Are the ratios the paper's or better, within the noise? There is nothing to correct."""
    corrected = Finding(Outcome.MISSING, applicable=False)
    way = next((way for way in ways(found) if (way.mode, way.last) == ("as-published", last)), None)
    if way is None:
        return None, corrected
    paper, ratios = PAPER[what], {K: way.ratios("neumann-rbp", K)[what] for K in way.counts if K in PAPER[what]}
    known = {K: value for K, value in ratios.items() if value is not None}
    reaches = all(value >= (1 - NOISE) * paper[K] for K, value in known.items())
    outcome = Outcome.of(reaches if way.T == PAPER_T and set(known) == set(paper) else None)
    return Finding(outcome, (way, known.values()), way.seeds, way.length), corrected


def flat(way: Way) -> str:
    """Whether Neumann-RBP's memory grows with T."""
    K = PAPER_K if PAPER_K in way.counts else way.counts[-1]
    taken = {T: memory for T in way.lengths if (memory := way.cost("neumann-rbp", K, T)[MEMORY]) is not None}
    if len(taken) < 2:
        return ""
    (first, small), (last, large) = min(taken.items()), max(taken.items())
    words = "Flat" if large <= max(FLAT_RATIO * small, small + FLAT_MB) else "Not flat"
    return f"{words} in T: {short(small)} MB at {first}, {short(large)} at {last}."


def compared_ways(found: Sorted) -> list[tuple[Way, str, int | None]]:
    """Every way with Neumann-RBP at each K, then BPTT with checkpoints in each mode."""
    known = ways(found)
    exact = [next(way for way in known if way.mode == mode) for mode in dict.fromkeys(way.mode for way in known)]
    made: list[tuple[Way, str, int | None]] = [(way, "neumann-rbp", K) for way in known for K in way.counts]
    return made + [(way, method, None) for way in exact for method in CHECKPOINTED if way.at(method, None)]


def rounded(value: float | None) -> str:
    if value is None or math.isinf(value):
        return short(value)
    return f"{value:.2f}" if value < 10 else short(float(f"{value:.2g}"))


def beside(way: Way, method: str, K: int | None) -> tuple[str, float, float, float | None]:
    """A method's name, its time and memory relative to BPTT's, and the cosine of its hypergradient to BPTT's."""
    how = "" if method in UNROLLED else f", K = {K}, last step on {SHORTLY[way.last]}"
    time, memory = (1 / value if value else math.inf for value in way.ratios(method, K))
    return look(method).label + how, time, memory, way.cosine(method, K)


def little_memory(found: Sorted) -> list[tuple[Way, list[tuple[str, float, float, float | None]], dict[str, list[str]]]]:
    """Of each mode: the exact hypergradient in little memory beside Neumann-RBP, and of each way of Neumann-RBP which exact ones
    take no more memory, and no more time within the noise of the measurement."""
    made: list[tuple[Way, list[tuple[str, float, float, float | None]], dict[str, list[str]]]] = []
    for way in [way for way, method, _ in compared_ways(found) if method == CHECKPOINTED[-1]]:
        exact = [beside(way, method, None) for method in CHECKPOINTED if way.at(method, None)]
        ours = [beside(one, "neumann-rbp", nearest(one.counts)) for one in ways(found) if one.mode == way.mode]
        beaten = {name: [e[0] for e in exact if e[2] <= memory and e[1] <= (1 + NOISE) * time] for name, time, memory, _ in ours}
        made.append((way, exact + ours, beaten))
    return made


def grown(found: Sorted) -> list[Way]:
    return [way for way in ways(found) if len(way.lengths) > 1]


def everything(found: Sorted) -> list[tuple[Way, str, int | None]]:
    """Every way, method and K that was measured over T; methods that take no last step of their own once."""
    ways = grown(found)
    kept = [(way, method) for way in ways for method in way.methods() if method not in UNROLLED or way is ways[0]]
    return [(way, m, K) for way, m in kept for K in sorted(set(map(steps_of, way.of(m))), key=lambda K: K or 0)]


def all_lengths(found: Sorted) -> list[int]:
    return sorted({T for way in grown(found) for T in way.lengths})


def measured(found: Sorted) -> int:
    """How many trials were measured over T."""
    return len({id(trial) for way in grown(found) for trial in way.trials})


def over_lengths(found: Sorted) -> Picture:
    """CPU time and memory of one meta step over T."""
    rows: list[list[Panel]] = []
    for way in grown(found):
        K, T = nearest(way.counts), way.lengths
        time, memory = (
            {method: [(T, [way.cost(method, K, each)[what] for each in T])] for method in way.methods()}
            for what in (TIME, MEMORY)
        )
        x, last = f"training steps T (K = {K})", partial(marked, places=T)
        title = f"{way.title}, last step on {SHORTLY.get(way.last, way.last)}"
        rows.append(
            [
                Panel(time, title, x, "CPU time, s", plainly=True, last=last),
                Panel(memory, "", x, "memory, MB", plainly=True, last=last),
            ]
        )
    return draw(rows)
