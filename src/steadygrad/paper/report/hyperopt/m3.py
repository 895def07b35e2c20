"""M3: what a meta step costs, BPTT's divided by Neumann-RBP's, at T = 1000 and K = 10 / 50 / 100."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hyperopt.hypergradients import compared_at as compared
from steadygrad.paper.report.hyperopt.trials import PAPER_K, UNROLLED, HyperoptTrial, Mode, Sorted, last_words, nearest, way_order
from steadygrad.paper.report.panels import grid, legend, line, logarithmic, marked
from steadygrad.paper.report.section import NOTHING, Figure, Part, Table
from steadygrad.paper.report.style import CHECKPOINTED, look, ordered
from steadygrad.paper.report.text import percent, short
from steadygrad.paper.report.trial import median, ratio, seeds_of
from steadygrad.paper.report.verdicts import NOT_APPLICABLE, Length, Outcome, Verdict, as_published

PAPER_T = 1000
PAPER = {"time": {10: 3.02, 50: 2.87, 100: 2.68}, "memory": {10: 4.35, 50: 4.25, 100: 4.11}}
NOISE = 0.2
"""Two measurements of the same ratio, hours apart on a shared machine, differed by up to this share."""
FLAT_RATIO, FLAT_MB = 1.25, 5.0
"""Memory is flat in T if the largest T takes at most this many times, or MB more than, the smallest."""
COLUMNS = ("BPTT, s", "its, s", "ratio", "paper", "BPTT, MB", "its, MB", "ratio", "paper")
PLACES = {("time", "full"): "a", ("memory", "full"): "b", ("time", "step"): "c", ("memory", "step"): "d"}
SHORTLY = {"full": "all images", "average": "averaged batches", "step": "one mini-batch", "fresh": "fresh batches"}


@dataclass(frozen=True)
class Cost:
    """Medians over the trials of one method, T and K; memory is what the process takes above its libraries and data."""

    time: float | None
    memory: float | None

    @classmethod
    def of(cls, trials: Sequence[HyperoptTrial], seconds: str, memory: str) -> Cost:
        return cls(*(median(trial.measured.get(key) for trial in trials) for key in (seconds, memory)))


@dataclass(frozen=True)
class Way:
    """A mode and how its implicit methods take the last step, at the T at which BPTT and Neumann-RBP can be compared."""

    mode: Mode
    last: str
    T: int

    @property
    def words(self) -> str:
        return last_words(self.mode.name, self.last)

    @property
    def counts(self) -> list[int]:
        return sorted({trial.config["steps"] for trial in self.of("neumann-rbp") if trial.length == self.T})

    def of(self, method: str) -> list[HyperoptTrial]:
        return [trial for trial in self.mode.costs if trial.method == method and (method in UNROLLED or trial.last == self.last)]

    def methods(self) -> list[str]:
        return [method for method in ordered([trial.method for trial in self.mode.costs]) if self.of(method)]

    def lengths(self) -> list[int]:
        return sorted({trial.length for method in self.methods() for trial in self.of(method)})

    def trials(self, method: str, K: int | None, T: int | None = None) -> list[HyperoptTrial]:
        return [trial for trial in self.of(method) if trial.length == (T or self.T) and trial.steps in (None, K)]

    def cost(self, method: str, K: int | None, T: int | None = None) -> Cost:
        return Cost.of(self.trials(method, K, T), "cpu_seconds", "memory_mb")

    def exact(self, method: str, K: int | None) -> Cost:
        """BPTT's cost, measured in turns with the method's."""
        return Cost.of(self.trials(method, K), "bptt_cpu_seconds", "bptt_memory_mb")

    def ratio(self, method: str, K: int | None) -> Cost:
        """BPTT's cost divided by the method's."""
        exact, ours = self.exact(method, K), self.cost(method, K)
        return Cost(ratio(exact.time, ours.time), ratio(exact.memory, ours.memory))

    def cosine(self, method: str, K: int | None) -> float | None:
        """To BPTT's hypergradient: of the trial itself, or of those that compare hypergradients at the same T and K."""
        own = median(trial.result.get("cosine") for trial in self.trials(method, K))
        return own if own is not None else compared(self.mode, (self.T, K or 0, method), self.last)


def ways(found: Sorted) -> list[Way]:
    """At T = 1000, or at the largest T at which Neumann-RBP was measured."""
    made: list[Way] = []
    for mode in found.all:
        ours = [trial for trial in mode.costs if trial.method == "neumann-rbp"]
        for last in sorted({trial.last for trial in ours}, key=way_order):
            lengths = {trial.length for trial in ours if trial.last == last}
            made.append(Way(mode, last, PAPER_T if PAPER_T in lengths else max(lengths)))
    return made


def parts(found: Sorted) -> list[Part]:
    known = {way.last: way for way in ways(found) if way.mode.name == "as-published"}
    return [part(what, known.get(last), last) for what, last in PLACES]


def part(what: str, way: Way | None, last: str) -> Part:
    ratios = {} if way is None else {K: getattr(way.ratio("neumann-rbp", K), what) for K in PAPER[what] if K in way.counts}
    known = {K: value for K, value in ratios.items() if value is not None}
    full = way is not None and way.T == PAPER_T and set(known) == set(PAPER[what])
    reaches = all(value >= (1 - NOISE) * PAPER[what][K] for K, value in known.items())
    why = f"Within {percent(NOISE)} counts: that is the noise. "
    why += "A product on all images takes as long as many training steps." if (what, last) == ("time", "full") else ""
    if way is not None and what == "memory":
        why += flatness(way)
    return Part(
        f"M3{PLACES[what, last]}",
        f"BPTT's {what} of a meta step over Neumann-RBP's, K = 10 / 50 / 100; last step on {SHORTLY[last]}",
        " / ".join(f"{value:.2f}" for value in PAPER[what].values()),
        " / ".join(rounded(value) for value in known.values()),
        as_published(Outcome.of(reaches), length=Length(way.T, PAPER_T, "training steps"), seeds=seeds_of(way.mode.costs))
        if full and way is not None
        else NOTHING,
        Verdict(NOT_APPLICABLE),
        why.strip(),
    )


def flatness(way: Way) -> str:
    """Whether Neumann-RBP's memory grows with T."""
    K = PAPER_K if PAPER_K in way.counts else way.counts[-1]
    taken = {T: way.cost("neumann-rbp", K, T).memory for T in way.lengths()}
    known = {T: value for T, value in taken.items() if value is not None}
    if len(known) < 2:
        return ""
    small, large = known[min(known)], known[max(known)]
    flat = large <= max(FLAT_RATIO * small, small + FLAT_MB)
    return f"{'Flat' if flat else 'Not flat'} in T: {short(small)} MB at {min(known)}, {short(large)} at {max(known)}."


def table(found: Sorted) -> Table:
    """BPTT's cost divided by that of the methods that were measured in turns with it, beside the paper's."""
    rows: list[tuple[str, ...]] = []
    for way in ways(found):
        rows += [row(way, "neumann-rbp", K) for K in way.counts]
    for mode in found.all:
        way = next((way for way in ways(found) if way.mode is mode), None)
        rows += [row(way, method, None) for method in CHECKPOINTED if way is not None and way.trials(method, None)]
    return Table(
        "hyperopt-m3",
        "M3: cost of one meta step, BPTT's divided by each method's, and how its hypergradient points.",
        ("mode", "method", "last step on", "T", "K", *COLUMNS, "cosine"),
        tuple(rows),
        "Each cost is measured in a process of its own, on one core with denormals flushed: CPU seconds of a meta step, and the "
        "peak memory above what libraries and data take. BPTT takes turns with each method, and the fastest of each counts: "
        "others used the machine. Cosine: to BPTT's hypergradient at the first meta step. The paper's ratios are of a GPU, with "
        "a Neumann-RBP whose released code keeps the graph of all T training steps; BPTT took 310.4 s and 4,061 MB there.",
    )


def row(way: Way, method: str, K: int | None) -> tuple[str, ...]:
    exact, ours, both = way.exact(method, K), way.cost(method, K), way.ratio(method, K)
    cells: list[str] = []
    for what in ("time", "memory"):
        paper = f"{PAPER[what][K]:.2f}" if way.T == PAPER_T and K in PAPER[what] else "–"
        cells += [short(getattr(exact, what)), short(getattr(ours, what)), rounded(getattr(both, what)), paper]
    on = "–" if method in UNROLLED else way.words
    cosine = short(way.cosine(method, K))
    return (way.mode.title, look(method).label, on, str(way.T), "–" if K is None else str(K), *cells, cosine)


def numbers(found: Sorted) -> list[dict[str, Any]]:
    """The exact hypergradient in little memory beside Neumann-RBP: time and memory relative to BPTT's, and the cosine."""
    made: list[dict[str, Any]] = []
    for mode in found.all:
        of_mode = [way for way in ways(found) if way.mode is mode]
        known = [method for method in CHECKPOINTED if of_mode and of_mode[0].trials(method, None)]
        if known:
            exact = [beside(of_mode[0], method, None) for method in known]
            ours = [beside(way, "neumann-rbp", nearest(way.counts)) for way in of_mode]
            for one in ours:
                one["beaten"] = [other["name"] for other in exact if no_dearer(other, one)]
            made.append({"title": mode.title, "T": of_mode[0].T, "exact": exact, "ours": ours})
    return made


def no_dearer(exact: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Whether an exact method takes no more memory, and no more time within the noise of the measurement."""
    return exact["memory"] <= ours["memory"] and exact["time"] <= (1 + NOISE) * ours["time"]


def beside(way: Way, method: str, K: int | None) -> dict[str, Any]:
    both, on = way.ratio(method, K), "" if method in UNROLLED else f", K = {K}, last step on {SHORTLY[way.last]}"
    return {
        "name": look(method).label + on,
        "time": 1 / both.time if both.time else math.inf,
        "memory": 1 / both.memory if both.memory else math.inf,
        "cosine": way.cosine(method, K),
    }


def rounded(value: float | None) -> str:
    if value is None or math.isinf(value):
        return short(value)
    return f"{value:.2f}" if value < 10 else short(float(f"{value:.2g}"))


def every(found: Sorted) -> Table:
    """CPU seconds and memory of every method over T."""
    longer = [way for way in ways(found) if len(way.lengths()) > 1]
    lengths = sorted({T for way in longer for T in way.lengths()})
    rows: list[tuple[str, ...]] = []
    for way in longer:
        for method in way.methods():
            if method in UNROLLED and way is not longer[0]:
                continue  # they take no last step of their own
            for K in sorted({trial.steps for trial in way.of(method)}, key=lambda K: K or 0):
                taken = [way.cost(method, K, T) for T in lengths]
                cells = [short(cost.time) for cost in taken] + [short(cost.memory) for cost in taken]
                on = "–" if method in UNROLLED else SHORTLY.get(way.last, way.last)
                rows.append((way.mode.title, look(method).label, on, "–" if K is None else str(K), *cells))
    heads = [f"s, T = {T}" for T in lengths] + [f"MB, T = {T}" for T in lengths]
    note = "CPU seconds of one meta step, and peak memory above libraries and data; – where nobody measured."
    head = ("mode", "method", "last step on", "K", *heads)
    return Table("hyperopt-m3-every", "Time and memory of every method.", head, tuple(rows), note)


def figure(found: Sorted) -> Figure | None:
    longer = [way for way in ways(found) if len(way.lengths()) > 1]
    if not longer:
        return None
    trials: dict[int, Any] = {id(trial): trial for way in longer for method in way.methods() for trial in way.of(method)}
    return Figure(
        "hyperopt-m3-growth",
        "M3: CPU time and memory of one meta step over T, each measured in a process of its own. Medians over trials.",
        f"Lines over T. {' '.join(flatness(way) for way in longer)}",
        partial(draw, longer),
        len(trials),
    )


def draw(found: Sequence[Way]) -> Picture:
    picture, rows = grid(len(found), 2)
    for way, axes in zip(found, rows, strict=True):
        K, lengths = nearest(way.counts), way.lengths()
        for place, method in enumerate(way.methods()):
            taken = [way.cost(method, K, T) for T in lengths]
            for axis, values in zip(axes, ([c.time for c in taken], [c.memory for c in taken]), strict=True):
                line(axis, method, [(lengths, values)], place, len(way.methods()))
        axes[0].set(title=f"{way.mode.title}, last step on {SHORTLY.get(way.last, way.last)}", ylabel="CPU time, s")
        axes[1].set(ylabel="memory, MB")
        for axis in axes:
            axis.set(xlabel=f"training steps T (K = {K})")
            marked(axis, lengths)
            logarithmic(axis)
    legend(picture, rows)
    return picture
