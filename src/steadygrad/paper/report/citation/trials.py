"""The citation records, sorted: the trials of each graph and mode, and those that were trained longer or otherwise."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steadygrad.paper.records import Record
from steadygrad.paper.report import style
from steadygrad.paper.report.section import Findings
from steadygrad.paper.report.trial import MODES, TITLES, Group, Trial, grouped, judged, rank, read, seeds_of, setting
from steadygrad.paper.report.verdicts import Length, Outcome

GRAPHS = ("cora", "pubmed", "planted")
NAMES = {"cora": "Cora", "pubmed": "Pubmed", "planted": "Planted partition"}
PAIR = ("neumann-rbp", "tbptt")
"""The two methods of which the paper says that they are the best, and level."""
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


def test(trial: Trial) -> float:
    """Test accuracy at the best validation epoch, in percent."""
    return 100 * trial.result["test_accuracy"]


def validation(trial: Trial) -> float:
    """The best validation accuracy, in percent."""
    return 100 * trial.result["validation_accuracy"]


@dataclass(frozen=True)
class Place(Group):
    """The trials of one graph and mode that differ in method and seed only; references with settings of their own."""

    others: tuple[Place, ...] = ()
    """gradient methods with other settings, the longest first"""

    @property
    def graph(self) -> str:
        return self.setting["graph"]

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

    def methods(self, K: int | None = None) -> list[str]:
        """The baselines, the gradient methods in the order of all our figures, the references."""
        return in_order([trial.method for trial in self.trials])

    def gradients(self) -> list[str]:
        return [method for method in self.methods() if method not in (*REFERENCES, *style.CHECKPOINTED)]

    def seeds_of(self, *methods: str) -> int:
        return min(seeds_of(self.of(method)) for method in methods)

    def mean(self, method: str, measure: Callable[[Trial], float]) -> float | None:
        return statistics.fmean(map(measure, self.of(method))) if self.of(method) else None


def in_order(methods: Sequence[str]) -> list[str]:
    return sorted(style.ordered(methods), key=lambda m: (m not in ("baseline", "linear"), m in REFERENCES))


@dataclass(frozen=True)
class Sorted:
    places: tuple[Place, ...]

    def of(self, graph: str, mode: str) -> Place | None:
        return next((place for place in self.on(graph) if place.mode == mode), None)

    def on(self, graph: str) -> list[Place]:
        return [place for place in self.places if place.graph == graph]

    @property
    def graphs(self) -> list[str]:
        return [graph for graph in GRAPHS if self.on(graph)]

    def lengths(self, graph: str) -> list[Place]:
        """As published on a graph, and those of the same mode that were trained longer, the longest first."""
        place = self.of(graph, "as-published")
        return [*(o for o in place.others if o.setting["epochs"] > place.setting["epochs"]), place] if place else []

    def judged(self, graph: str, rule: Callable[[Place], Outcome], methods: Sequence[str] = PAIR) -> Findings:
        """By the longest trials as published that have what the rule takes, and by the corrected ones if they have."""
        return judged(self.lengths(graph), self.of(graph, "corrected"), rule, lambda place: place.seeds_of(*methods))


def sort(records: Sequence[Record]) -> Sorted:
    trials = [trial for trial in read(records, BEFORE) if "test_accuracy" in trial.result]
    known = [[t for t in trials if (t.config["graph"], t.config["mode"]) == (graph, mode)] for graph in GRAPHS for mode in MODES]
    return Sorted(tuple(place(of) for of in known if of))


def place(trials: Sequence[Trial]) -> Place:
    """The setting with most methods, then most trials, is that of the gradient methods; references go with every setting."""
    settings = by_setting([trial for trial in trials if trial.method not in REFERENCES])
    chosen = max(settings, key=main, default=[])
    references: list[Trial] = []
    for method in REFERENCES:
        references += max(by_setting([trial for trial in trials if trial.method == method]), key=main, default=[])
    others = [made([*of, *references]) for of in settings if of is not chosen]
    return made([*chosen, *references], *sorted(others, key=lambda other: other.setting["epochs"], reverse=True))


def made(trials: Sequence[Trial], *others: Place) -> Place:
    config = trials[0].config
    kept = {key: value for key, value in config.items() if key not in IGNORED}
    return Place(config["mode"], kept, tuple(trials), others=others)


def by_setting(trials: Sequence[Trial]) -> list[list[Trial]]:
    return grouped(trials, lambda trial: setting(trial, IGNORED))


def main(trials: Sequence[Trial]) -> tuple[int, int, int]:
    return *rank(trials), trials[0].config["epochs"]
