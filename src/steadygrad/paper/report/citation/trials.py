"""The citation records, sorted: the trials of each graph and mode, and those that were trained longer or otherwise."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import chain

from steadygrad.paper.records import Record
from steadygrad.paper.report.sorting import Found, grouped, read, setting
from steadygrad.paper.report.sorting import sort as sort_trials
from steadygrad.paper.report.style import CHECKPOINTED
from steadygrad.paper.report.trial import TITLES, Group, Trial, seeds_of
from steadygrad.paper.report.verdicts import Length

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
LENGTHS = ("epochs", "validate_every", *BEFORE)
"""What may differ between a mode and a longer run of it."""
IGNORED = ("seed", "method", "diagnose")
"""What may differ between trials of one setting."""


def test(trial: Trial) -> float:
    """Test accuracy at the best validation epoch, in percent."""
    return 100 * trial.result["test_accuracy"]


def validation(trial: Trial) -> float:
    """The best validation accuracy, in percent."""
    return 100 * trial.result["validation_accuracy"]


def heading(place: Group) -> str:
    """The mode, and its epochs where they are the paper's."""
    return TITLES[place.mode] + (f", {place.length}" if place.mode == "as-published" and place.length.full else "")


def gradients(place: Group) -> list[str]:
    return [method for method in place.methods() if method not in (*REFERENCES, *CHECKPOINTED)]


def seeds_of_pair(place: Group) -> int:
    return min(seeds_of(place.of(method)) for method in PAIR)


def mean(place: Group, method: str, measure: Callable[[Trial], float]) -> float | None:
    return statistics.fmean(map(measure, place.of(method))) if place.of(method) else None


def sort(records: Sequence[Record]) -> Found:
    """References go with every setting of their graph and mode, each in its own main one."""
    trials = [trial for trial in read(records, BEFORE) if "test_accuracy" in trial.result]
    known = grouped([trial for trial in trials if trial.method in REFERENCES], lambda trial: setting(trial, ("seed", "diagnose")))

    def place(own: list[Trial]) -> Group:
        kept = {key: value for key, value in own[0].config.items() if key not in IGNORED}
        here = [of for of in known if (of[0].config["graph"], of[0].config["mode"]) == (kept["graph"], kept["mode"])]
        references = [max((of for of in here if of[0].method == method), key=len, default=[]) for method in REFERENCES]
        title = f"{NAMES[kept['graph']]}, {TITLES[kept['mode']].lower()}"
        return Group(kept, (*own, *chain(*references)), title, Length(kept["epochs"], PAPER_EPOCHS, "epochs"))

    return sort_trials([trial for trial in trials if trial.method not in REFERENCES], IGNORED, LENGTHS, place)
