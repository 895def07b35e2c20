"""Cost of the citation experiment, also beside an exact gradient in little memory: BPTT with checkpoints."""

from __future__ import annotations

from steadygrad.paper.report.citation.trials import Place, Sorted, test
from steadygrad.paper.report.style import CHECKPOINTED, look
from steadygrad.paper.report.text import short
from steadygrad.paper.report.trial import Trial, called, median, middle
from steadygrad.paper.report.verdicts import Gap

SHOWN = ("evaluations", "cpu_ms", "time", "mb", "memory", "cosine", "error")
MEASURED = ("milliseconds_per_epoch", "epoch_mb", "training_seconds", "peak_mb")


def costs(place: Place) -> list[tuple[str, ...]]:
    """What each method costs per epoch: evaluations of F, products, and what was measured."""
    made: list[tuple[str, ...]] = []
    for method in (method for method in place.methods() if method not in ("baseline", *CHECKPOINTED)):
        trials = place.of(method)
        counted = [middle(trials, lambda t, k=k: per_epoch(t, k)) for k in ("evaluations", "products")]
        measured = [middle(trials, lambda t, k=k: t.measured.get(k)) for k in MEASURED]
        made.append((look(method).label, *map(short, (*counted, *measured))))
    return made


def per_epoch(trial: Trial, name: str) -> float | None:
    done = len(trial.result["training_loss"])
    return trial.result[name] / done if done and trial.result[name] else None


def in_turns(place: Place) -> dict[str, dict[str, float]]:
    """One epoch by several methods in turns, medians; time and memory also relative to BPTT's in the same trial."""
    found = [trial.measured["turns"] for trial in place.trials if trial.measured.get("turns")]
    made: dict[str, dict[str, float]] = {}
    for method in found[0] if found else ():
        numbers = {key: median(one[method][key] for one in found) or 0.0 for key in found[0][method]}
        for name, key in (("time", "cpu_ms"), ("memory", "mb")):
            numbers[name] = median(one[method][key] / one["bptt"][key] for one in found) or 0.0
        made[called(method)] = numbers
    return made


def turned(found: Sorted) -> list[Place]:
    return [place for place in found.places if in_turns(place)]


def exact(place: Place) -> list[tuple[str, ...]]:
    """What an exact gradient in little memory costs beside Neumann-RBP, and how it ends: test accuracy minus BPTT's."""
    made: list[tuple[str, ...]] = []
    for method, one in in_turns(place).items():
        gaps = place.gaps(method, "bptt", test)
        mean = f"{sum(gaps) / len(gaps):+.1f}".replace("-", "−") if gaps else "–"
        made.append((look(method).label, *(short(one[key]) for key in SHOWN), str(Gap.of(gaps) or mean), str(len(gaps))))
    return made


def strayed(place: Place) -> dict[str, list[float]]:
    """How far the test accuracies of BPTT in less memory are from BPTT's, seed by seed, in points."""
    gaps = {method: place.gaps(method, "bptt", test) for method in CHECKPOINTED}
    return {method: list(map(abs, of)) for method, of in gaps.items() if of}
