"""The citation records, sorted: the trials of each graph and mode, and those that were trained longer or otherwise."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report import style
from steadygrad.paper.report.trial import MODES, TITLES, Trial, by_seed, first, grouped, rank, read, seeds_of, setting
from steadygrad.paper.report.verdicts import Gap, Length, Outcome

GRAPHS = ("cora", "pubmed", "planted")
NAMES = {"cora": "Cora", "pubmed": "Pubmed", "planted": "Planted partition"}
REFERENCES = ("baseline", "linear", "appnp", "gcn")
"""Other classifiers, each with settings of its own."""
PAPER = {
    "cora": {
        "baseline": "39.96 ± 3.4",
        "bptt": "24.48 ± 6.6",
        "tbptt": "46.55 ± 6.4",
        "artbp-uniform": "27.88 ± 3.2",
        "artbp-poisson": "42.22 ± 7.1",
        "rbp-uniform": "29.25 ± 3.3",
        "cg-rbp": "39.26 ± 6.5",
        "neumann-rbp": "46.63 ± 8.3",
    },
    "pubmed": {
        "baseline": "40.41 ± 3.1",
        "bptt": "47.05 ± 3.1",
        "tbptt": "53.41 ± 6.7",
        "rbp-uniform": "48.55 ± 3.4",
        "cg-rbp": "49.12 ± 2.9",
        "neumann-rbp": "53.56 ± 5.3",
    },
}
"""The paper's accuracies; those of ARTBP are validation accuracies by its own words."""
PAPER_EPOCHS = 2000
BEFORE = {"linearise": "last", "ridge": 0.0, "edges": "once", "outputs": 0}
"""Settings that the first records do not name, as they were."""
IGNORED = ("seed", "method", "diagnose")
"""What may differ between trials of one setting."""


@dataclass(frozen=True)
class CitationTrial(Trial):
    """A trial of this experiment."""

    @property
    def test(self) -> float:
        """Test accuracy at the best validation epoch, in percent."""
        return 100 * self.result["test_accuracy"]

    @property
    def validation(self) -> float:
        """The best validation accuracy, in percent."""
        return 100 * self.result["validation_accuracy"]


Measure = Callable[[CitationTrial], float]


@dataclass(frozen=True)
class Group:
    """The trials of one graph and mode that differ in method and seed only; references with settings of their own."""

    graph: str
    mode: str
    setting: dict[str, Any]
    trials: tuple[CitationTrial, ...]
    others: tuple[Group, ...] = field(default=())
    """gradient methods with other settings, the longest first"""

    @property
    def title(self) -> str:
        return f"{NAMES[self.graph]}, {TITLES[self.mode].lower()}"

    @property
    def heading(self) -> str:
        """The mode, and its epochs where they are the paper's."""
        return TITLES[self.mode] + (f", {self.length}" if self.mode == "as-published" and self.length.full else "")

    @property
    def length(self) -> Length:
        return Length(self.setting["epochs"], PAPER_EPOCHS, "epochs")

    def of(self, method: str) -> list[CitationTrial]:
        return by_seed(t for t in self.trials if t.method == method)

    def methods(self) -> list[str]:
        return in_order([trial.method for trial in self.trials])

    def gradients(self) -> list[str]:
        return [method for method in self.methods() if method not in (*REFERENCES, *style.CHECKPOINTED)]

    def seeds(self, *methods: str) -> int:
        return min((seeds_of(self.of(method)) for method in methods), default=0)

    def gap(self, one: str, other: str, measure: Measure) -> Gap | None:
        """`measure` of one method minus the other's, over the seeds that both have; None with too few of them."""
        return Gap.of(self.gaps(one, other, measure))

    def gaps(self, one: str, other: str, measure: Measure) -> list[float]:
        theirs = {trial.seed: measure(trial) for trial in self.of(other)}
        return [measure(trial) - theirs[trial.seed] for trial in self.of(one) if trial.seed in theirs]

    def mean(self, method: str, measure: Measure) -> float | None:
        trials = self.of(method)
        return statistics.fmean(map(measure, trials)) if trials else None


Rule = Callable[[Group], Outcome]


@dataclass(frozen=True)
class Sorted:
    groups: tuple[Group, ...]

    def of(self, graph: str, mode: str) -> Group | None:
        return next((group for group in self.groups if (group.graph, group.mode) == (graph, mode)), None)

    def lengths(self, graph: str, mode: str) -> list[Group]:
        """The group and those of the same mode that were trained longer, the longest first."""
        group = self.of(graph, mode)
        if group is None:
            return []
        return [*(other for other in group.others if other.setting["epochs"] > group.setting["epochs"]), group]

    def judged(self, graph: str, rule: Rule) -> tuple[Group | None, Group | None]:
        """By which a claim is judged: as published the longest that has what the rule takes, and the corrected one if it has."""
        fixed = self.of(graph, "corrected")
        return first(self.lengths(graph, "as-published"), rule), first([fixed] if fixed else [], rule)

    @property
    def graphs(self) -> list[str]:
        return [graph for graph in GRAPHS if any(group.graph == graph for group in self.groups)]

    def on(self, graph: str) -> list[Group]:
        return [group for group in self.groups if group.graph == graph]


def sort(records: Sequence[Record]) -> Sorted:
    trials = [t for t in read(CitationTrial, records, BEFORE) if "test_accuracy" in t.result]
    places = [(graph, mode) for graph in GRAPHS for mode in MODES]
    found = (group([t for t in trials if (t.config["graph"], t.config["mode"]) == place]) for place in places)
    return Sorted(tuple(one for one in found if one is not None))


def group(trials: Sequence[CitationTrial]) -> Group | None:
    """The setting with most methods, then most trials, is that of the gradient methods; references go with every setting."""
    if not trials:
        return None
    settings = by_setting([trial for trial in trials if trial.method not in REFERENCES])
    chosen = max(settings, key=main, default=[])
    references: list[CitationTrial] = []
    for method in REFERENCES:
        references += max(by_setting([trial for trial in trials if trial.method == method]), key=main, default=[])
    others = [made(of, references) for of in settings if of is not chosen]
    others.sort(key=lambda other: other.setting["epochs"], reverse=True)
    return made(chosen, references, tuple(others))


def made(trials: Sequence[CitationTrial], references: Sequence[CitationTrial], others: tuple[Group, ...] = ()) -> Group:
    config = (trials or references)[0].config
    setting = {key: value for key, value in config.items() if key not in IGNORED}
    return Group(config["graph"], config["mode"], setting, (*trials, *references), others)


def by_setting(trials: Sequence[CitationTrial]) -> list[list[CitationTrial]]:
    return grouped(trials, lambda trial: setting(trial, IGNORED))


def main(trials: Sequence[CitationTrial]) -> tuple[int, int, int]:
    return *rank(trials), trials[0].config["epochs"]


def in_order(methods: Sequence[str]) -> list[str]:
    """Each method once: the baselines, the gradient methods in the order of all our figures, the references."""
    return sorted(style.ordered(methods), key=lambda m: (m not in ("baseline", "linear"), m in REFERENCES))


def label(method: str) -> str:
    return style.look(method).label


def tested(trials: Sequence[CitationTrial]) -> str:
    return spread([trial.test for trial in trials])


def validated(trials: Sequence[CitationTrial]) -> str:
    return spread([trial.validation for trial in trials])


def spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"
