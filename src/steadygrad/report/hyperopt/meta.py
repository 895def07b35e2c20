"""M1 and M2: what the curves of meta training and of the last training say, T by T and K by K."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from steadygrad.report.finding import Finding, missing
from steadygrad.report.hyperopt.measures import bend, end, span, times
from steadygrad.report.hyperopt.trials import Cell, Mode, finite, median
from steadygrad.report.style import look
from steadygrad.report.text import number, percent, plural

PAPER_META_STEPS, PAPER_SEEDS = 100, 10
RIVALS = ("rbp", "tbptt")
"""M1: what Neumann-RBP is to end below."""
LEVEL = 0.01
"""M1: what differs by less than this share is level, neither below the other."""
LEAST_T, LEAST_META_STEPS = 100, 20
"""Trials with less training or less tuning are for trying things out, and no evidence."""
MATCHES = 1.5
"""M2: two losses match that are within this factor of each other."""
GENERALLY = 0.75
"""M2: "generally" is in at least this share of the settings."""


def m1(mode: Mode) -> Finding:
    """All three parts must hold; one that fails is enough against it."""
    parts = dict(zip("abc", (smoother(mode), truncated_worse(mode), neumann_lowest(mode)), strict=True))
    ours = "; ".join(f"({name}) {part.ours}" for name, part in parts.items() if part.ours)
    why = "; ".join(f"({name}) {part.why}" for name, part in parts.items())
    cosines = {look(method).label: cosine(mode, method) for method in ("neumann-rbp", *RIVALS)}
    if None not in cosines.values():
        shown = ", ".join(f"{name} {value:.2f}" for name, value in cosines.items())
        why += f"; median cosine to BPTT's hypergradient on the way: {shown}"
    verdicts = [part.holds for part in parts.values()]
    holds = False if False in verdicts else None if None in verdicts else True
    return judged(mode, Finding(holds, ours, why + shorter(mode)))


def smoother(mode: Mode) -> Finding:
    bends = bends_by_length(mode)
    if len(bends) < 2:
        return Finding(None, "", "no verdict on smoothness, since it takes two T with the same methods and K")
    falls = all(later < (1 - LEVEL) * earlier for earlier, later in pairwise(bends.values()))
    ours = f"mean bend of the log curve {strokes(list(bends.values()))} at {lengths(list(bends))}"
    return Finding(falls, ours, "smoother at every larger T" if falls else "not smoother at every larger T")


def bends_by_length(mode: Mode) -> dict[int, float]:
    """The median bend of the methods and K that every T has."""
    tried = {T: {(trial.method, trial.steps) for trial in mode.tuned if trial.length == T} for T in mode.lengths}
    common = set.intersection(*tried.values()) if tried else set[tuple[str, int | None]]()
    found: dict[int, float] = {}
    for T in mode.lengths:
        trials = [trial for trial in mode.tuned if trial.length == T and (trial.method, trial.steps) in common]
        if (value := median(bend(trial.meta_loss) for trial in trials)) is not None:
            found[T] = value
    return found


def truncated_worse(mode: Mode) -> Finding:
    words: list[str] = []
    grows: list[bool] = []
    for K in mode.counts:
        ends = {cell.T: value for cell in mode.cells if cell.K == K and (value := beside_exact(cell, "tbptt")) is not None}
        if len(ends) > 1:
            grows.append(all(later > (1 + LEVEL) * earlier for earlier, later in pairwise(ends.values())))
            words.append(f"{strokes(list(ends.values()), 4)} times BPTT's loss at {lengths(list(ends))}, K = {K}")
    if not grows:
        return Finding(None, "", "no verdict on TBPTT, since it takes two T with BPTT beside it")
    always = all(grows)
    return Finding(always, f"TBPTT ends at {'; '.join(words)}", f"TBPTT {'worse' if always else 'not worse'} at every larger T")


def beside_exact(cell: Cell, method: str) -> float | None:
    """Where a method's meta loss ends, relative to BPTT's from the same seed; median over seeds."""
    return median(times(end(trial.meta_loss), end(exact.meta_loss)) for trial, exact in cell.pairs(method))


def neumann_lowest(mode: Mode) -> Finding:
    judged: dict[str, str] = {}
    for cell in mode.cells:
        ours, *theirs = (final(cell, method) for method in ("neumann-rbp", *RIVALS))
        if ours is not None and None not in theirs:
            judged[cell.title] = not_below(ours, dict(zip(RIVALS, finite(theirs), strict=True)))
    names = " and ".join(look(method).label for method in RIVALS)
    if not judged:
        return Finding(None, "", f"no verdict on Neumann-RBP, since it takes {names} beside it")
    lost = {words: [title for title, other in judged.items() if other == words] for words in judged.values() if words}
    count = sum(map(len, lost.values()))
    ours = f"Neumann-RBP ends below {names} in {len(judged) - count} of {plural(len(judged), 'setting')}"
    where = {words: "everywhere" if len(at) == len(judged) else f"at {' and '.join(at)}" for words, at in lost.items()}
    told = "; ".join(f"{words} {place}" for words, place in where.items())
    return Finding(not lost, ours, f"Neumann-RBP {told or 'always below both'}")


def not_below(ours: float, theirs: dict[str, float]) -> str:
    """Which of them Neumann-RBP is not below, in words; empty where it is below all."""
    level = [look(method).label for method, other in theirs.items() if abs(ours - other) <= LEVEL * other]
    above = [look(method).label for method, other in theirs.items() if ours > (1 + LEVEL) * other]
    parts = [f"level with {' and '.join(level)}"] if level else []
    return ", ".join([*parts, *([f"above {' and '.join(above)}"] if above else [])])


def cosine(mode: Mode, method: str) -> float | None:
    """To BPTT's hypergradient, median over all T, K, seeds and meta steps at which it was taken."""
    trials = [trial for trial in mode.tuned if trial.method == method]
    return median(value for trial in trials for value in (trial.result.get("reference") or {}).get("cosine") or [])


def final(cell: Cell, method: str) -> float | None:
    """Where a method's meta loss ends, median over seeds."""
    return median(end(trial.meta_loss) for trial in cell.of(method))


def m2(mode: Mode) -> Finding:
    ratios = {cell.title: value for cell in mode.cells if (value := last_training(cell, "neumann-rbp")) is not None}
    if not ratios:
        return missing("BPTT and Neumann-RBP from one seed, with their last training")
    match = [title for title, ratio in ratios.items() if 1 / MATCHES <= ratio <= MATCHES]
    above = sum(ratio > MATCHES for ratio in ratios.values())
    below = len(ratios) - len(match) - above
    why = (
        f"within a factor of {number(MATCHES)} of BPTT in {len(match)} of {plural(len(ratios), 'setting')}, above in {above}, "
        f"below in {below}; generally is in {percent(GENERALLY)} of them"
    )
    ours = f"Neumann-RBP ends at {span(list(ratios.values()))} times BPTT's training loss"
    return judged(mode, Finding(len(match) >= GENERALLY * len(ratios), ours, why + shorter(mode)))


def last_training(cell: Cell, method: str) -> float | None:
    """Where the training loss of the last meta step ends, relative to BPTT's from the same seed; median over seeds."""
    ratios: list[float | None] = []
    for pair in cell.pairs(method):
        ours, theirs = (trial.result.get("last_training") for trial in pair)
        if ours and theirs and ours["loss"] and theirs["loss"]:
            ratios.append(times(end(ours["loss"]), end(theirs["loss"])))
    return median(ratios)


def judged(mode: Mode, found: Finding) -> Finding:
    """The finding, or the same without a verdict where the trials are too short for one."""
    if max(mode.lengths) >= LEAST_T and mode.meta_steps >= LEAST_META_STEPS:
        return found
    return Finding(None, found.ours, f"no verdict from T < {LEAST_T} or fewer than {LEAST_META_STEPS} meta steps; {found.why}")


def shorter(mode: Mode) -> str:
    """How the trials fall short of the paper's, where they do."""
    parts: list[str] = []
    if 0 < mode.meta_steps < PAPER_META_STEPS:
        parts.append(f"{plural(mode.meta_steps, 'meta step')} instead of {PAPER_META_STEPS}")
    if 0 < len(mode.seeds) < PAPER_SEEDS:
        parts.append(f"{plural(len(mode.seeds), 'seed')} instead of {PAPER_SEEDS}")
    return f" ({', '.join(parts)})" if parts else ""


def strokes(values: Sequence[float], digits: int = 2) -> str:
    return " / ".join(number(float(f"{value:.{digits}g}")) for value in values)


def lengths(found: Sequence[int]) -> str:
    return f"T = {' / '.join(map(str, found))}"
