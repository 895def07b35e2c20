"""Cost of the citation experiment, also beside an exact gradient in little memory: BPTT with checkpoints."""

from __future__ import annotations

from steadygrad.paper.report.trial import Group, called, median


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
