"""The citation records, sorted: the trials of each graph and mode, and those with other settings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from steadygrad.records import Record
from steadygrad.report import style
from steadygrad.report.trial import MODES, TITLES
from steadygrad.report.trial import Trial as AnyTrial

GRAPHS = ("cora", "pubmed", "planted")
NAMES = {"cora": "Cora", "pubmed": "Pubmed", "planted": "Planted partition"}
REFERENCES = ("baseline", "appnp", "gcn")
"""Other classifiers, each with settings of its own."""
LEVEL = 1.0
"""Two methods are level where they differ by less than this, in points."""
IGNORED = ("seed", "method", "diagnose")
"""What may differ between trials of one setting."""


@dataclass(frozen=True)
class Trial(AnyTrial):
    """A trial of this experiment."""

    @property
    def test(self) -> float:
        """Test accuracy at the best validation epoch, in percent."""
        return 100 * self.result["test_accuracy"]

    @property
    def validation(self) -> float:
        """The best validation accuracy, in percent."""
        return 100 * self.result["validation_accuracy"]

    def last(self, name: str) -> Any:
        """The last that was measured."""
        return next((value for value in reversed(self.seen(name)) if value is not None), None)


@dataclass(frozen=True)
class Group:
    """The trials of one graph and mode that differ in method and seed only; references with settings of their own."""

    graph: str
    mode: str
    setting: dict[str, Any]
    trials: tuple[Trial, ...]
    others: tuple[Trial, ...]
    """Trials of gradient methods with other settings."""

    @property
    def title(self) -> str:
        return f"{NAMES[self.graph]}, {TITLES[self.mode].lower()}"

    @property
    def epochs(self) -> int:
        return self.setting["epochs"]

    def of(self, method: str) -> list[Trial]:
        return sorted((t for t in self.trials if t.method == method), key=lambda trial: trial.seed)

    def methods(self) -> list[str]:
        return in_order([trial.method for trial in self.trials])

    def gradients(self) -> list[str]:
        return [method for method in self.methods() if method not in REFERENCES]


@dataclass(frozen=True)
class Sorted:
    groups: tuple[Group, ...]

    def of(self, graph: str, mode: str) -> Group | None:
        return next((group for group in self.groups if (group.graph, group.mode) == (graph, mode)), None)

    @property
    def graphs(self) -> list[str]:
        return [graph for graph in GRAPHS if any(group.graph == graph for group in self.groups)]

    def on(self, graph: str) -> list[Group]:
        return [group for group in self.groups if group.graph == graph]


def sort(records: Sequence[Record]) -> Sorted:
    trials = [Trial(r.config, r.result, r.measured) for r in records if r.result is not None and "test_accuracy" in r.result]
    found = (group([t for t in trials if (t.config["graph"], t.config["mode"]) == place]) for place in places())
    return Sorted(tuple(one for one in found if one is not None))


def places() -> list[tuple[str, str]]:
    return [(graph, mode) for graph in GRAPHS for mode in MODES]


def group(trials: Sequence[Trial]) -> Group | None:
    """The setting with most methods, then most trials, is that of the gradient methods."""
    if not trials:
        return None
    settings = by_setting([trial for trial in trials if trial.method not in REFERENCES])
    main = max(settings, key=rank, default=[])
    kept = [*main]
    for method in REFERENCES:
        kept += max(by_setting([trial for trial in trials if trial.method == method]), key=rank, default=[])
    others = [trial for setting in settings if setting is not main for trial in setting]
    config = (main or kept)[0].config
    setting = {key: value for key, value in config.items() if key not in IGNORED}
    return Group(config["graph"], config["mode"], setting, tuple(kept), tuple(others))


def by_setting(trials: Sequence[Trial]) -> list[list[Trial]]:
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        key = repr(sorted((name, value) for name, value in trial.config.items() if name not in IGNORED))
        found.setdefault(key, []).append(trial)
    return list(found.values())


def rank(trials: Sequence[Trial]) -> tuple[int, int, int]:
    return len({trial.method for trial in trials}), len(trials), trials[0].config["epochs"]


def in_order(methods: Sequence[str]) -> list[str]:
    """Each method once: the baseline, the gradient methods in the order of all our figures, the references."""
    return sorted(style.ordered(methods), key=lambda method: (method != "baseline", method in REFERENCES))


def label(method: str) -> str:
    return style.look(method).label


def middle(trials: Sequence[Trial], measure: Callable[[Trial], float | None]) -> float | None:
    """The median over the trials in which there is something to measure; what is not finite counts as infinite."""
    found = [value if math.isfinite(value) else math.inf for trial in trials if (value := measure(trial)) is not None]
    return statistics.median(found) if found else None


@dataclass(frozen=True)
class Difference:
    """By how much one method exceeds another, seed by seed: mean and standard error."""

    mean: float
    error: float
    seeds: int

    @property
    def above(self) -> bool:
        """Larger by more than two standard errors."""
        return self.mean > 2 * self.error

    @property
    def level(self) -> bool:
        """Less than a point, or not told apart from zero by two standard errors."""
        return abs(self.mean) <= max(LEVEL, 2 * self.error)

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ± {self.error:.1f}".replace("-", "−")


def difference(group: Group, one: str, other: str, measure: Callable[[Trial], float]) -> Difference | None:
    """`measure` of one method minus the other's, over the seeds that both have; None with fewer than three of them."""
    theirs = {trial.seed: measure(trial) for trial in group.of(other)}
    gaps = [measure(trial) - theirs[trial.seed] for trial in group.of(one) if trial.seed in theirs]
    if len(gaps) < 3:
        return None
    return Difference(statistics.fmean(gaps), statistics.stdev(gaps) / math.sqrt(len(gaps)), len(gaps))
