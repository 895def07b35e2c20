"""M3: what a meta step costs in a fresh process, beside the paper's ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steadygrad.report.finding import Finding
from steadygrad.report.hyperopt.measures import times
from steadygrad.report.hyperopt.trials import PAPER_K, UNROLLED, Mode, Sorted, Trial, last_words, median, way_order
from steadygrad.report.section import Table
from steadygrad.report.style import look, ordered
from steadygrad.report.text import short

PAPER_T = 1000
PAPER_TIME = {10: 3.02, 50: 2.87, 100: 2.68}
PAPER_MEMORY = {10: 4.35, 50: 4.25, 100: 4.11}
CLOSE = 0.9
"""A ratio that is at least this share of the paper's, which comes from another machine, counts as the paper's."""
AIM_TIME, AIM_MEMORY = 3.0, 50.0
"""Our own aims at K = 50."""
FLAT_RATIO, FLAT_MB = 1.25, 5.0
"""Memory is flat in T if the largest T takes at most this many times, or MB more than, the smallest."""
COLUMNS = ("BPTT, s", "Neumann, s", "ratio", "paper", "BPTT, MB", "Neumann, MB", "ratio", "paper")


@dataclass(frozen=True)
class Cost:
    """Medians over the trials of one method, T and K; memory is what the process takes above its libraries and data."""

    seconds: float | None
    memory: float | None

    @classmethod
    def of(cls, trials: Sequence[Trial], seconds: str, memory: str) -> Cost:
        return cls(*(median(trial.measured.get(key) for trial in trials) for key in (seconds, memory)))


@dataclass(frozen=True)
class Way:
    """A mode and how its implicit methods take the last step, at the T at which BPTT and Neumann-RBP can be compared."""

    mode: Mode
    last: str
    T: int

    @property
    def title(self) -> str:
        return f"{self.mode.title}, last step on {self.words}"

    @property
    def words(self) -> str:
        return last_words(self.mode.name, self.last)

    @property
    def counts(self) -> list[int]:
        return sorted({trial.config["steps"] for trial in self.of("neumann-rbp") if trial.length == self.T})

    def of(self, method: str) -> list[Trial]:
        return [trial for trial in self.mode.costs if trial.method == method and (method in UNROLLED or trial.last == self.last)]

    def methods(self) -> list[str]:
        return [method for method in ordered([trial.method for trial in self.mode.costs]) if self.of(method)]

    def lengths(self) -> list[int]:
        return sorted({trial.length for method in self.methods() for trial in self.of(method)})

    def trials(self, method: str, K: int | None, T: int | None = None) -> list[Trial]:
        return [trial for trial in self.of(method) if trial.length == (T or self.T) and trial.steps in (None, K)]

    def cost(self, method: str, K: int | None, T: int | None = None) -> Cost:
        return Cost.of(self.trials(method, K, T), "cpu_seconds", "memory_mb")

    def exact(self, K: int) -> Cost:
        """BPTT's cost, measured in turns with Neumann-RBP's."""
        return Cost.of(self.trials("neumann-rbp", K), "bptt_cpu_seconds", "bptt_memory_mb")

    def ratio(self, K: int) -> Cost:
        """BPTT's cost divided by Neumann-RBP's."""
        exact, ours = self.exact(K), self.cost("neumann-rbp", K)
        return Cost(times(exact.seconds, ours.seconds), times(exact.memory, ours.memory))


def ways(found: Sorted) -> list[Way]:
    """At T = 1000, or at the largest T at which Neumann-RBP was measured."""
    made: list[Way] = []
    for mode in found.all:
        ours = [trial for trial in mode.costs if trial.method == "neumann-rbp"]
        for last in sorted({trial.last for trial in ours}, key=way_order):
            lengths = {trial.length for trial in ours if trial.last == last}
            made.append(Way(mode, last, PAPER_T if PAPER_T in lengths else max(lengths)))
    return made


def m3(way: Way) -> Finding:
    ratios = {K: way.ratio(K) for K in way.counts}
    known = {K: r for K, r in ratios.items() if r.seconds is not None and r.memory is not None}
    if not known:
        return Finding(None, "", "no data, since BPTT was not measured beside it: run the cost trials again")
    at = f"at K = {' / '.join(map(str, known))}"
    seconds = " / ".join(rounded(ratio.seconds) for ratio in known.values())
    memory = " / ".join(rounded(ratio.memory) for ratio in known.values())
    ours = f"time {seconds}, memory {memory} {at}"
    if way.T != PAPER_T or PAPER_K not in known:
        return Finding(None, f"{ours}, T = {way.T}", f"no verdict, since it takes T = {PAPER_T} and K = {PAPER_K}")
    judged = {K: ratio for K, ratio in known.items() if K in PAPER_TIME}
    slow = [K for K, r in judged.items() if r.seconds is not None and r.seconds < CLOSE * PAPER_TIME[K]]
    large = [K for K, r in judged.items() if r.memory is not None and r.memory < CLOSE * PAPER_MEMORY[K]]
    flat = flatness(way)
    why = f"{reached('time', slow)}, {reached('memory', large)}; our aim (K = {PAPER_K}: time ≥ {short(AIM_TIME)}, memory ≥ "
    why += f"{short(AIM_MEMORY)}) is {aims(known[PAPER_K])}{f'; {flat}' if flat else ''}"
    return Finding(not slow and not large, ours, why)


def reached(what: str, low: Sequence[int]) -> str:
    return f"{what} below the paper's ratio at K = {', '.join(map(str, low))}" if low else f"{what} reaches the paper's ratios"


def aims(ratio: Cost) -> str:
    time, memory = (value is not None and value >= aim for value, aim in ((ratio.seconds, AIM_TIME), (ratio.memory, AIM_MEMORY)))
    return "met" if time and memory else "met in time only" if time else "met in memory only" if memory else "missed"


def flatness(way: Way) -> str:
    """Whether Neumann-RBP's memory grows with T."""
    K = PAPER_K if PAPER_K in way.counts else way.counts[-1]
    taken = {T: way.cost("neumann-rbp", K, T).memory for T in way.lengths()}
    known = {T: value for T, value in taken.items() if value is not None}
    if len(known) < 2:
        return ""
    small, large = known[min(known)], known[max(known)]
    flat = large <= max(FLAT_RATIO * small, small + FLAT_MB)
    return (
        f"Neumann-RBP's memory is {'flat' if flat else 'not flat'} in T ({short(small)} MB at T = {min(known)}, {short(large)} "
        f"MB at T = {max(known)})"
    )


def ratios(found: Sequence[Way]) -> Table:
    """M3: BPTT's cost divided by Neumann-RBP's, beside the paper's."""
    rows: list[tuple[str, ...]] = []
    for way in found:
        for K in way.counts:
            exact, ours, ratio = way.exact(K), way.cost("neumann-rbp", K), way.ratio(K)
            time = (short(exact.seconds), short(ours.seconds), rounded(ratio.seconds), paper(PAPER_TIME, way.T, K))
            memory = (short(exact.memory), short(ours.memory), rounded(ratio.memory), paper(PAPER_MEMORY, way.T, K))
            rows.append((way.mode.title, way.words, str(way.T), str(K), *time, *memory))
    head = ("mode", "last step on", "T", "K", *COLUMNS)
    return Table(
        "M3: cost of one meta step, and BPTT's divided by Neumann-RBP's.",
        head,
        tuple(rows),
        "Each cost is measured in a process of its own, on one core with denormals flushed: CPU seconds of a meta step, and the "
        "peak memory above what libraries and data take. The two methods take turns, and the fastest of each counts. The paper's "
        "ratios are of a GPU, with a Neumann-RBP whose released code keeps the graph of all T training steps (trap 6); BPTT took "
        "310.4 s and 4,061 MB there. "
        f"Our aims at K = {PAPER_K}: time at least {short(AIM_TIME)}, memory at least {short(AIM_MEMORY)}.",
        "hyperopt-m3",
    )


def paper(published: dict[int, float], T: int, K: int) -> str:
    return f"{published[K]:.2f}" if T == PAPER_T and K in published else "–"


def rounded(ratio: float | None) -> str:
    if ratio is None or math.isinf(ratio):
        return short(ratio)
    return f"{ratio:.2f}" if ratio < 10 else short(float(f"{ratio:.2g}"))


def every(found: Sequence[Way]) -> Table:
    """CPU seconds and memory of every method over T."""
    lengths = sorted({T for way in found for T in way.lengths()})
    rows: list[tuple[str, ...]] = []
    for way in found:
        for method in way.methods():
            for K in sorted({trial.steps for trial in way.of(method)}, key=lambda K: K or 0):
                taken = [way.cost(method, K, T) for T in lengths]
                cells = [short(cost.seconds) for cost in taken] + [short(cost.memory) for cost in taken]
                rows.append((way.title, look(method).label, "–" if K is None else str(K), *cells))
    heads = [f"s, T = {T}" for T in lengths] + [f"MB, T = {T}" for T in lengths]
    note = "CPU seconds of one meta step, and peak memory above libraries and data; – where nobody measured."
    return Table("Time and memory of every method.", ("mode", "method", "K", *heads), tuple(rows), note)
