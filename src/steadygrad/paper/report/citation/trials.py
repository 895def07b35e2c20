"""The citation records, sorted: the trials of each graph and mode, and those that were trained longer or otherwise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import chain
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report import generic, sorting
from steadygrad.paper.report.section import Table
from steadygrad.paper.report.sorting import Found, grouped, read, setting
from steadygrad.paper.report.style import CHECKPOINTED
from steadygrad.paper.report.text import to
from steadygrad.paper.report.trial import TITLES, Group, Measure, Trial, called, median, seeds_of
from steadygrad.paper.report.verdicts import Finding, Length

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
ONLY_CORRECTED = ("length", "hidden", "dropout", "alpha", "prior")
"""Settings without effect as published."""
IGNORED = ("seed", "method", "diagnose")
"""What may differ between trials of one setting."""


def test(trial: Trial) -> float:
    """Test accuracy at the best validation epoch, in percent."""
    return 100 * trial.result["test_accuracy"]


def validation(trial: Trial) -> float:
    """The best validation accuracy, in percent."""
    return 100 * trial.result["validation_accuracy"]


def gradients(place: Group) -> list[str]:
    return [method for method in place.methods() if method not in (*REFERENCES, *CHECKPOINTED)]


def seeds_of_pair(place: Group, methods: Sequence[str] = PAIR) -> int:
    """How many seeds each of these methods has at least."""
    return min(seeds_of(place.of(method)) for method in methods)


def longer(found: Found, graph: str, judged: Finding) -> list[Group]:
    """Trials as published of both methods that are longer than those that were judged, the longest first."""
    return [one for one in found.beyond(judged.of, graph) if seeds_of_pair(one)]


def mean(place: Group, method: str, measure: Measure) -> float | None:
    return statistics.fmean(place.over(method, measure)) if place.of(method) else None


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{deviation}" if values else "–"


def papers(graph: str, *methods: str) -> list[str]:
    """The paper's accuracies without their deviations."""
    return [PAPER[graph][method].partition(" ")[0] for method in methods]


def counts(places: Sequence[Group]) -> str:
    """How many seeds the methods have: "as published: 10; corrected: 1 to 3" while it is running."""
    counted = [sorted({len(p.of(m)) for m in p.methods() if m not in CHECKPOINTED} or {0}) for p in places]
    spans = [to(str(of[0]), str(of[-1])) for of in counted]
    return "; ".join(f"{place.heading.lower()}: {span}" for place, span in zip(places, spans, strict=True))


def per_epoch(place: Group, method: str, name: str) -> float | None:
    """A count of the whole training, divided by its epochs."""
    counts = [(trial.result[name], len(trial.result["training_loss"])) for trial in place.of(method)]
    return median(count / epochs if epochs and count else None for count, epochs in counts)


def in_turns(place: Group) -> dict[str, dict[str, float]]:
    """One epoch by several methods in turns, medians; time and memory also relative to BPTT's in the same trial."""
    found = [trial.measured["turns"] for trial in place.trials if trial.measured.get("turns")]
    made: dict[str, dict[str, float]] = {}
    for method in found[0] if found else ():
        numbers = {key: median(one[method][key] for one in found) or 0.0 for key in found[0][method]}
        for name, key in (("time", "cpu_ms"), ("memory", "mb")):
            numbers[name] = median(one[method][key] / one["bptt"][key] for one in found) or 0.0
        made[called(method)] = numbers
    return made


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

    return sorting.sort([trial for trial in trials if trial.method not in REFERENCES], IGNORED, LENGTHS, place)


def settings(found: Found) -> Table:
    def told(place: Group) -> dict[str, Any]:
        idle = ONLY_CORRECTED if place.mode == "as-published" else ()
        own = [trial for trial in place.trials if trial.method not in REFERENCES]
        return place.setting | dict.fromkeys(idle) | {"seeds": seeds_of(own)}

    places = [place for graph in NAMES for place in found.shown(graph)]
    return generic.settings([(f"{NAMES[p.graph]}, {p.heading.lower()}", told(p)) for p in places], ("graph", "mode"))
