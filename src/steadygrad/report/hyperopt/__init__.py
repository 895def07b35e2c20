"""What the page says of the hyperparameter experiment: claims M1 to M4, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from steadygrad.records import Record
from steadygrad.report.hyperopt import costs, errors, figures, tables, trajectories, words
from steadygrad.report.hyperopt.claims import claims
from steadygrad.report.hyperopt.panels import FLOOR
from steadygrad.report.hyperopt.trials import Mode, Sorted, Trial, sort
from steadygrad.report.section import Block, Figure, Section

__all__ = ["section"]

FLOORED = f"Errors below {FLOOR:g} are drawn there."
BANDS = "Lines: median over seeds; bands: from the lowest to the highest seed."


def section(records: Sequence[Record]) -> Section:
    """Verdicts, figures, tables and words, each computed from the records; what they cannot show is left out or named."""
    found = sort(records)
    return Section(
        name="hyperopt",
        title="Hyperparameters",
        about=words.about(found),
        claims=claims(found),
        blocks=tuple(blocks(found)) if found.all else ("No trial has a result.",),
        settings=tables.settings(found),
        command="steadygrad run hyperopt --preset standard --out results",
    )


def blocks(found: Sorted) -> list[Block]:
    made: list[Block] = ["## Learning rates do not move the point of rest", words.degenerate(found)]
    tuned = [mode for mode in found.all if mode.cells]
    if tuned:
        made += ["## Meta training", *(meta_loss(mode) for mode in tuned), *(tables.ends(mode) for mode in tuned)]
        made += ["## The last training", *(last_training(mode) for mode in tuned if has_training(mode))]
        made += [*(tables.trainings(mode) for mode in tuned), *(weights(mode) for mode in tuned if is_weighed(mode))]
        made += filter(None, [tables.aside(tuned)])
    made += ["## Are the hypergradients right?", words.agreement(found)]
    made += [*(figure for mode in tuned for figure in reference(mode)), *hypergradients(found)]
    if walked := [mode for mode in tuned if trajectories.walked(mode)]:
        made += ["## Does training come to rest?", *(paths(mode) for mode in walked), trajectories.table(walked)]
    return made + cost(found)


def meta_loss(mode: Mode) -> Figure:
    return Figure(
        f"hyperopt-m1-{mode.name}",
        f"M1, {mode.title.lower()}: meta loss over meta steps, a panel a T and K. BPTT, forward mode and auto have no K. {BANDS}",
        f"Meta loss curves of {named(mode)} in panels: {panels(mode)}.",
        partial(figures.meta_loss, mode),
        len(mode.tuned),
    )


def last_training(mode: Mode) -> Figure:
    kept = [trial for trial in mode.tuned if figures.trained(trial)]
    return Figure(
        f"hyperopt-m2-{mode.name}",
        f"M2, {mode.title.lower()}: training loss along the training of the last meta step, a panel a T and K. {BANDS}",
        f"Training loss curves of {named(mode)} in panels: {panels(mode)}.",
        partial(figures.last_training, mode),
        len(kept),
    )


def weights(mode: Mode) -> Figure:
    kept = [trial for trial in mode.tuned if figures.weighed(trial)]
    return Figure(
        f"hyperopt-weights-{mode.name}",
        f"{mode.title}: the mean weight that tuning gives to training images with a wrong label, relative to that of those with "
        f"the right one. Nobody told it which. {BANDS}",
        f"Curves of {named(mode)} from 1 in panels: {panels(mode)}.",
        partial(figures.weights, mode),
        len(kept),
    )


def reference(mode: Mode) -> list[Figure]:
    return [referred(mode, K) for K in mode.counts if figures.referred(mode, K)]


def referred(mode: Mode, K: int | None) -> Figure:
    cells = figures.referred(mode, K)
    return Figure(
        f"hyperopt-hypergradient-{mode.name}-{K or 'whole'}",
        f"{mode.title}{f', K = {K}' if K else ''}: each method's hypergradient against exact BPTT at the same hyperparameters, "
        f"through meta training. Above: cosine, 1 is right; below: relative error, 1 is as far off as zero. "
        f"{FLOORED} {BANDS}",
        f"Cosine and relative error over meta steps in panels: {', '.join(cell.title for cell in cells)}. "
        f"{words.agreement(Sorted((mode,)))}",
        partial(figures.reference, mode, K),
        len({id(trial) for cell in cells for trial in cell.trials if figures.compared(trial, "cosine")}),
    )


def hypergradients(found: Sorted) -> list[Block]:
    modes = [mode for mode in found.all if errors.drawn(mode)]
    if not modes:
        return []
    count = sum(len(mode.errors) for mode in modes)
    names = " and ".join(mode.title.lower() for mode in modes)
    about = f"of each method's hypergradient at the first meta step against exact BPTT, {names}. {FLOORED} {BANDS}"
    alt = f"Lines of each method, {names}; the numbers are in the table below."
    made: list[Block] = [
        Figure("hyperopt-errors-length", f"Cosine and error over T, {about}", alt, partial(errors.over_length, modes), count),
        Figure("hyperopt-errors-count", f"Cosine and error over K, {about}", alt, partial(errors.over_count, modes), count),
        errors.table(Sorted(tuple(modes))),
    ]
    return [*made, *filter(None, [errors.ways(found)])]


def paths(mode: Mode) -> Figure:
    cell, trials = trajectories.shown(mode)
    steps = " and ".join(map(str, trajectories.meta_steps(cell)))
    seeds = ", ".join(str(seed) for seed in sorted({trial.seed for trial in trials.values()}))
    return Figure(
        f"hyperopt-m4-{mode.name}",
        f"M4, {mode.title.lower()}: the weights along the training of meta steps {steps} ({cell.title}, seed {seeds}). Above: "
        "t-SNE of both methods together; squares and dashes TBPTT, crosses Neumann-RBP, time as colour; it keeps neighbours, not "
        "distances. Below: the distance from the last state, relative to that of the first.",
        f"Two paths a meta step; {trajectories.m4(mode).ours or 'their numbers are in the table below'}.",
        partial(trajectories.draw, mode),
        len(trials),
    )


def cost(found: Sorted) -> list[Block]:
    ways = costs.ways(found)
    made: list[Block] = ["## Cost", words.memory(ways)]
    if ways:
        made.append(costs.ratios(ways))
    if longer := [way for way in ways if len(way.lengths()) > 1]:
        made += [growth(longer), costs.every(longer)]
    return made if ways else [*made, "No trial measured what Neumann-RBP costs."]


def growth(ways: Sequence[costs.Way]) -> Figure:
    trials: dict[int, Trial] = {id(trial): trial for way in ways for method in way.methods() for trial in way.of(method)}
    return Figure(
        "hyperopt-m3-growth",
        "M3: CPU time and memory of one meta step over T, each measured in a process of its own. Medians over trials.",
        f"Lines over T. {words.memory(ways)}",
        partial(figures.costs, ways),
        len(trials),
    )


def has_training(mode: Mode) -> bool:
    return any(figures.trained(trial) for trial in mode.tuned)


def is_weighed(mode: Mode) -> bool:
    return any(figures.weighed(trial) for trial in mode.tuned)


def named(mode: Mode) -> str:
    return ", ".join(sorted({trial.method for trial in mode.tuned}))


def panels(mode: Mode) -> str:
    return "; ".join(cell.title for cell in mode.cells)
