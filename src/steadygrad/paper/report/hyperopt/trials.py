"""The hyperopt records, sorted: of each mode the trials that tune, those that compare hypergradients, and those that cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from steadygrad.paper.records import Record
from steadygrad.paper.report import style
from steadygrad.paper.report.panels import Points
from steadygrad.paper.report.trial import MODES, TITLES, Trial, by_seed, grouped, rank, read, seeds_of, setting
from steadygrad.paper.report.verdicts import Length

WHOLE = ("bptt", *style.CHECKPOINTED, "forward", "auto")
"""The methods that have no K."""
UNROLLED = ("bptt", *style.CHECKPOINTED, "tbptt", "forward")
"""The methods that go back through the training as it was, hence take no last step of their own choice."""
WAYS = ("full", "average", "step", "fresh")
"""On what an implicit method takes the last step, the way of the released code first."""
FREE = (
    "task",
    "mode",
    "method",
    "last",
    "steps",
    "training_steps",
    "meta_steps",
    "seed",
    "reference_every",
    "trajectory",
    "shuffle",
)
"""What may differ between trials of one setting."""
LASTS = {
    "full": "all training images (released code)",
    "average": "mini-batches, averaged (the text)",
    "step": "one mini-batch (the text)",
    "fresh": "a new mini-batch a term",
}
PAPER_META_STEPS = 100
LEAST_T, LEAST_META_STEPS = 100, 20
BEFORE = {"shuffle": False}
"""Settings that the first records do not name, as they were."""
PAPER_K = 50
"""The K that is shown where there is room for one: the smaller of the paper's figures."""


@dataclass(frozen=True)
class HyperoptTrial(Trial):
    """A trial of this experiment."""

    @property
    def length(self) -> int:
        """T, the training steps."""
        return self.config["training_steps"]

    @property
    def steps(self) -> int | None:
        """K, of the methods that have one."""
        return None if self.method in WHOLE else self.config["steps"]

    @property
    def last(self) -> str:
        return self.config.get("last", WAYS[0])

    @property
    def meta_loss(self) -> list[float | None]:
        return self.result["meta_loss"]


@dataclass(frozen=True)
class Cell:
    """The tuning trials of one T and K, which differ in method and seed only; methods without a K are in every K, with the
    seeds of the others."""

    T: int
    K: int | None
    trials: tuple[HyperoptTrial, ...]

    @property
    def title(self) -> str:
        return f"T = {self.T}" if self.K is None else f"T = {self.T}, K = {self.K}"

    def of(self, method: str) -> list[HyperoptTrial]:
        return by_seed(trial for trial in self.trials if trial.method == method)

    def methods(self) -> list[str]:
        return style.ordered([trial.method for trial in self.trials])

    @property
    def meta_steps(self) -> int:
        return self.trials[0].config["meta_steps"]

    def pairs(self, method: str) -> list[tuple[HyperoptTrial, HyperoptTrial]]:
        """Trials of a method, each with BPTT from the same seed."""
        exact = {trial.seed: trial for trial in self.of("bptt")}
        return [(trial, exact[trial.seed]) for trial in self.of(method) if trial.seed in exact]


@dataclass(frozen=True)
class Mode:
    """The trials of a mode, task by task, each in its main setting."""

    name: str
    cells: tuple[Cell, ...]
    aside: tuple[HyperoptTrial, ...]
    """tuning trials of the same setting that take the last step another way"""
    errors: tuple[HyperoptTrial, ...]
    costs: tuple[HyperoptTrial, ...]
    left_out: int
    """trials with other settings, too few meta steps, or seeds that no method with a K has"""

    @property
    def title(self) -> str:
        return TITLES[self.name]

    @property
    def lengths(self) -> list[int]:
        return sorted({cell.T for cell in self.cells})

    @property
    def counts(self) -> list[int | None]:
        return sorted({cell.K for cell in self.cells}, key=lambda K: K or 0)

    def cell(self, T: int, K: int | None) -> Cell | None:
        return next((cell for cell in self.cells if (cell.T, cell.K) == (T, K)), None)

    @property
    def tuned(self) -> tuple[HyperoptTrial, ...]:
        """Every tuning trial that is shown, once."""
        return tuple({id(trial): trial for cell in self.cells for trial in cell.trials}.values())

    def judged(self, enough: Callable[[Cell], bool]) -> list[Cell]:
        """The settings that are evidence: of those that have what it takes, the ones with the paper's meta steps if there are
        some. Too little training or tuning is for trying things out."""
        found = [c for c in self.cells if c.T >= LEAST_T and c.meta_steps >= LEAST_META_STEPS and enough(c)]
        return [cell for cell in found if cell.meta_steps >= PAPER_META_STEPS] or found


def length(cells: Sequence[Cell]) -> Length:
    return Length(min(cell.meta_steps for cell in cells), PAPER_META_STEPS, "meta steps")


def seeds(cells: Sequence[Cell]) -> tuple[int, int]:
    """The fewest and the most."""
    found = [seeds_of(cell.trials) for cell in cells]
    return min(found), max(found)


def curves(cell: Cell, series: Callable[[HyperoptTrial], Points | None], *without: str) -> dict[str, list[Points]]:
    """What a figure draws of each method."""
    methods = [method for method in cell.methods() if method not in without]
    return {method: [points for trial in cell.of(method) if (points := series(trial)) is not None] for method in methods}


@dataclass(frozen=True)
class Sorted:
    all: tuple[Mode, ...]

    def of(self, name: str) -> Mode | None:
        return next((mode for mode in self.all if mode.name == name), None)

    @property
    def tuned(self) -> list[Mode]:
        return [mode for mode in self.all if mode.cells]


def sort(records: Sequence[Record]) -> Sorted:
    trials = read(HyperoptTrial, records, BEFORE)
    modes = (sort_mode(name, [trial for trial in trials if trial.config.get("mode") == name]) for name in MODES)
    return Sorted(tuple(mode for mode in modes if mode.cells or mode.aside or mode.errors or mode.costs))


def sort_mode(name: str, trials: Sequence[HyperoptTrial]) -> Mode:
    tune, errors, costs = (main([trial for trial in trials if task(trial) == kind]) for kind in ("tune", "errors", "cost"))
    way = main_way(tune)
    usual = [trial for trial in tune if way in (None, trial.last) or trial.method in UNROLLED]
    made = tuple(cells(usual))
    aside = tuple(trial for trial in tune if trial not in usual)
    shown = {id(trial) for cell in made for trial in cell.trials} | {id(trial) for trial in (*aside, *errors, *costs)}
    return Mode(name, made, aside, tuple(errors), tuple(costs), len(trials) - len(shown))


def task(trial: Trial) -> str:
    """What the trial was for, if it also has what such a trial leaves."""
    kind = str(trial.config.get("task"))
    needed = {"tune": trial.result.get("meta_loss"), "errors": trial.result.get("entries"), "cost": trial.measured}
    return kind if needed.get(kind) else ""


def main(trials: Sequence[HyperoptTrial]) -> list[HyperoptTrial]:
    """The trials of the setting on which most training was spent: quick ones do not push aside what is still being run. Of costs
    as large, those that were measured more often."""

    def spent(group: list[HyperoptTrial]) -> tuple[int, int]:
        return sum(trial.length * trial.config["meta_steps"] for trial in group), group[0].config.get("repeats", 0)

    return max(grouped(trials, lambda trial: setting(trial, FREE)), key=spent, default=[])


def main_way(trials: Sequence[HyperoptTrial]) -> str | None:
    """On what most implicit trials take the last step; the released code's way where there are as many of each."""
    implicit = [trial.last for trial in trials if trial.method not in UNROLLED]
    return max(sorted(set(implicit), key=way_order), key=implicit.count, default=None)


def way_order(way: str) -> int:
    return WAYS.index(way) if way in WAYS else len(WAYS)


def last_words(mode: str, way: str) -> str:
    if mode == "corrected" and way in ("full", "step"):
        return "the training images"  # training takes all of them in every step there: the two are one
    return LASTS.get(way, way)


def cells(trials: Sequence[HyperoptTrial]) -> Iterable[Cell]:
    """Every T and K, methods without a K with the seeds of the others; of trials with different numbers of meta steps those that
    most methods share, then the longer ones."""
    for T in sorted({trial.length for trial in trials}):
        of_length = [trial for trial in trials if trial.length == T]
        for K in sorted({trial.steps for trial in of_length if trial.steps is not None}) or [None]:
            seeds = {trial.seed for trial in of_length if trial.steps == K}
            here = [trial for trial in of_length if trial.steps == K or (trial.steps is None and trial.seed in seeds)]
            tried = grouped(here, lambda trial: trial.config["meta_steps"])
            kept = max(tried, key=lambda group: (rank(group), group[0].config["meta_steps"]))
            yield Cell(T, K, tuple(kept))


def nearest(counts: Iterable[int], wanted: int = PAPER_K) -> int | None:
    return min(sorted(counts), key=lambda count: abs(count - wanted), default=None)
