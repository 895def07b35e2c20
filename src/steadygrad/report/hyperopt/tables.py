"""The tables of what meta training comes to, and of the settings."""

from __future__ import annotations

from collections.abc import Sequence

from steadygrad.report import generic
from steadygrad.report.hyperopt.measures import bend, end, rises
from steadygrad.report.hyperopt.meta import final, last_training
from steadygrad.report.hyperopt.trials import FREE, WHOLE, Cell, Mode, Sorted, Trial, last_words, median
from steadygrad.report.section import Table
from steadygrad.report.style import look, ordered
from steadygrad.report.text import number, percent, short


def ends(mode: Mode) -> Table:
    """M1: where the meta loss of each method ends, a row a T and K."""
    methods = ordered([trial.method for trial in mode.tuned])
    rows: list[tuple[str, ...]] = []
    for cell in mode.cells:
        start = median(trial.meta_loss[0] for trial in cell.trials)
        rough = [short(median(f(trial.meta_loss) for trial in cell.trials)) for f in (bend, rises)]
        finals = [short(final(cell, method)) for method in methods]
        rows.append((str(cell.T), "–" if cell.K is None else str(cell.K), short(start), *finals, *rough))
    return Table(
        f"M1, {mode.title.lower()}: where the meta loss ends.",
        ("T", "K", "start", *(look(method).label for method in methods), "bend", "rises"),
        tuple(rows),
        "Median of the last tenth of the meta steps, then over seeds. Bend: mean |Δ² log L|, how rough the curve is on a "
        "logarithmic axis (0: straight), median over all its trials; (a) of M1 compares it between T over the methods and K that "
        "every T has. Rises: share of meta steps at which the loss goes up.",
        f"hyperopt-m1-ends-{mode.name}",
    )


def trainings(mode: Mode) -> Table:
    """M2 and what the tuned network is worth: the last training relative to BPTT's, and its test where there is one."""
    rows: dict[tuple[str, ...], tuple[str, ...]] = {}
    tested = any(trial.result.get("test_accuracy") is not None for trial in mode.tuned)
    for cell in mode.cells:
        for method in cell.methods():
            K = "–" if method in WHOLE else str(cell.K)
            numbers = (*trained(cell, method), *(worth(cell.of(method)) if tested else ()), *watched(cell.of(method)))
            rows.setdefault((look(method).label, str(cell.T), K), numbers)
    test = ("test loss", "untuned", "test accuracy", "untuned") if tested else ()
    rejected = sum(trial.result.get("rejected") or 0 for trial in mode.tuned)
    note = (
        "Training loss: median of the last tenth of the training; ÷ BPTT's: from the same seed. Cosine, last: of the "
        "hypergradient to BPTT's when they were last compared. Medians over seeds. Meta steps that were taken back, since "
        f"something in them was not finite: {number(rejected)}."
    )
    if tested:
        note += " A lower training loss is no merit here: the loss on other images is tuned. Untuned: with the first values."
    return Table(
        f"M2, {mode.title.lower()}: the training of the last meta step, and the network that it leaves.",
        ("method", "T", "K", "training loss", "÷ BPTT's", *test, "cosine, last", "seeds"),
        tuple((*place, *numbers) for place, numbers in rows.items()),
        note,
        f"hyperopt-m2-worth-{mode.name}",
    )


def trained(cell: Cell, method: str) -> tuple[str, ...]:
    curves = [(trial.result.get("last_training") or {}).get("loss") or [None] for trial in cell.of(method)]
    return short(median(end(curve) for curve in curves)), "1" if method == "bptt" else short(last_training(cell, method))


def worth(trials: Sequence[Trial]) -> tuple[str, ...]:
    names = ("test_loss", "untuned_test_loss", "test_accuracy", "untuned_test_accuracy")
    values = [median(trial.result.get(name) for trial in trials) for name in names]
    return tuple(
        short(value) if value is None or "loss" in name else percent(value) for name, value in zip(names, values, strict=True)
    )


def watched(trials: Sequence[Trial]) -> tuple[str, ...]:
    return short(median(cosine(trial) for trial in trials)), str(len(trials))


def cosine(trial: Trial) -> float | None:
    found = (trial.result.get("reference") or {}).get("cosine")
    return found[-1] if found else None


def aside(modes: Sequence[Mode]) -> Table | None:
    """Tuning trials that take the last step another way than those of the figures."""
    rows: list[tuple[str, ...]] = []
    for mode in modes:
        for trial in sorted(mode.aside, key=lambda t: (t.length, t.steps or 0, t.method, t.last, t.seed)):
            place = (
                mode.title,
                str(trial.length),
                number(trial.steps),
                look(trial.method).label,
                last_words(mode.name, trial.last),
            )
            numbers = (short(value) for value in (trial.meta_loss[0], end(trial.meta_loss), cosine(trial)))
            rows.append((*place, str(trial.seed), *numbers))
    if not rows:
        return None
    head = ("mode", "T", "K", "method", "last step on", "seed", "first meta loss", "last meta loss", "cosine, last")
    return Table("Tuning with the last step taken another way than in the figures.", head, tuple(rows))


def settings(found: Sorted) -> Table:
    """The settings of both modes side by side."""
    configs = [next((trial.config for trial in (*mode.tuned, *mode.errors, *mode.costs)), {}) for mode in found.all]
    names = [name for name in generic.keys(configs) if name not in FREE]
    rows = [(name, *(generic.cell(config.get(name)) for config in configs)) for name in names]
    rows += [("T", *(listed(mode.lengths) for mode in found.all)), ("K", *(listed(mode.counts) for mode in found.all))]
    rows += [("meta steps, most", *(number(mode.meta_steps) for mode in found.all))]
    rows += [("seeds of tuning", *(str(len(mode.seeds)) for mode in found.all))]
    rows += [("trials not shown: other settings or seeds", *(str(mode.left_out) for mode in found.all))]
    return Table("Settings of the modes.", ("setting", *(mode.title.lower() for mode in found.all)), tuple(rows))


def listed(values: Sequence[int | None]) -> str:
    return ", ".join(str(value) for value in values if value is not None) or "–"
