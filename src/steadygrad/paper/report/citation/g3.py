"""G3: curves: the state becomes steady, and Neumann-RBP goes with TBPTT through training."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.citation.g1 import PAIR
from steadygrad.paper.report.citation.trials import NAMES, CitationTrial, Group, Sorted, label
from steadygrad.paper.report.panels import DOTTED, Array, grid, legend, stacked
from steadygrad.paper.report.section import Figure, Finding, Part, Table, judged
from steadygrad.paper.report.style import curve
from steadygrad.paper.report.text import NO_BREAK, percent, plural, short
from steadygrad.paper.report.trial import middle
from steadygrad.paper.report.verdicts import SEEDS, Outcome

STEADY = 0.01
"""Steady is where the last step moves the state by less than this share of its norm."""
CLOSE = 5.0
"""Curves go together if the means of the validation accuracies differ by less than this, in points, at the last epoch."""
ADJOINT = ("rbp-uniform", "cg-rbp", "neumann-rbp", "auto")
"""The methods that solve the adjoint equation, hence have a residual of it."""
BAND = "Lines: mean over seeds, geometric on logarithmic axes; bands: a standard deviation."
Series = Callable[[CitationTrial], Sequence[float | None]]


def parts(found: Sorted) -> list[Part]:
    letters = {"cora": "ab", "pubmed": "cd"}
    return [rule(found, graph, letter) for graph, of in letters.items() for rule, letter in zip((rests, goes), of, strict=True)]


def rests(found: Sorted, graph: str, letter: str) -> Part:
    group, fixed = found.judged(graph, steady)
    published, why = None, ""
    if group is not None:
        words, premise = f"the last step moves it by {share(group)}", steady(group) is Outcome.YES
        published = Finding(steady(group), words, group.seeds(*PAIR), group.length, premise)
        scaled = middle(both(group), lambda trial: trial.latest("difference_scaled"))
        rho = middle(both(group), lambda trial: trial.result.get("spectral_radius"))
        why = f"Divided by the number of elements, as plotted, that is {short(scaled)}; ρ(J) = {short(rho)}: the series diverges."
    corrected = Finding(steady(fixed), share(fixed), fixed.seeds(*PAIR)) if fixed else None
    text = f"{NAMES[graph]}: the state becomes steady"
    return judged(f"G3{letter}", text, "difference norm almost zero", published, corrected, why)


def goes(found: Sorted, graph: str, letter: str) -> Part:
    lengths = [g for g in found.lengths(graph, "as-published") if together(g) is not Outcome.MISSING]
    group = max(lengths, key=lambda g: (min(g.seeds(*PAIR), SEEDS), g.setting["epochs"]), default=None)
    fixed = found.judged(graph, together)[1]
    published, why = None, f"Limit: {CLOSE:.0f} points"
    if group is not None:
        longer = [g for g in lengths if g.setting["epochs"] > group.setting["epochs"]]
        other = together(longer[0]) if longer else Outcome.MISSING
        published = Finding(
            together(group), f"end {apart(group):.1f} points apart", group.seeds(*PAIR), group.length, longer=other
        )
        for one in longer:
            why += f"; after {one.setting['epochs']:,} epochs, {plural(one.seeds(*PAIR), 'seed')}: {apart(one):.1f} apart"
    corrected = Finding(together(fixed), f"{apart(fixed):.1f} apart", fixed.seeds(*PAIR)) if fixed else None
    text = f"{NAMES[graph]}: Neumann-RBP goes with TBPTT through training"
    return judged(f"G3{letter}", text, "curves", published, corrected, f"{why}.")


def both(group: Group) -> list[CitationTrial]:
    return [trial for method in PAIR for trial in group.of(method)]


def moved(group: Group) -> float | None:
    """How far the last step moves the state, relative to its norm: the median of Neumann-RBP's and TBPTT's trials."""
    return middle(both(group), lambda trial: trial.latest("difference_relative")) if all(map(group.of, PAIR)) else None


def share(group: Group) -> str:
    return percent(float(f"{moved(group) or 0.0:.2g}"))


def steady(group: Group) -> Outcome:
    found = moved(group)
    return Outcome.of(None if found is None else found < STEADY)


def apart(group: Group) -> float:
    ends = [100 * statistics.fmean(trial.latest("accuracy") for trial in group.of(method)) for method in PAIR]
    return abs(ends[0] - ends[1])


def together(group: Group) -> Outcome:
    return Outcome.of(apart(group) < CLOSE) if all(map(group.of, PAIR)) else Outcome.MISSING


def numbers(found: Sorted) -> list[dict[str, Any]]:
    """In each place: how many methods end at a steady state, how far the last step moves them, and ρ(J)."""
    shown: list[dict[str, Any]] = []
    for group in found.groups:
        names = group.gradients()
        last = [v for m in names if (v := middle(group.of(m), lambda t: t.latest("difference_relative"))) is not None]
        radii = [v for m in names if (v := middle(group.of(m), lambda t: t.result.get("spectral_radius"))) is not None]
        if last:
            low, high = (percent(float(f"{value:.2g}")) for value in (min(last), max(last)))
            shown.append(
                {
                    "title": group.title,
                    "steady": sum(value < STEADY for value in last),
                    "methods": len(last),
                    "moves": low if low == high else f"{low.removesuffix(' %')} to {high}",
                    "radius": statistics.median(radii) if radii else None,
                }
            )
    return shown


def figures(found: Sorted) -> list[Figure]:
    made: list[Figure] = []
    for graph in found.graphs:
        full = [group for group in found.lengths(graph, "as-published")[:-1] if group.length.full]
        if groups := [group for group in (*found.on(graph), *full) if group.gradients()]:
            made += figures_of(graph, groups)
    return made


def figures_of(graph: str, groups: Sequence[Group]) -> list[Figure]:
    name, stem = NAMES[graph], f"citation-g3-{graph}"
    cut = " Methods whose curve starts far above the others leave the panel." if any(map(clipped, groups)) else ""
    drawn: list[tuple[str, str, str, Callable[[Sequence[Group]], Picture]]] = [
        (stem, f"G3, {name}: training loss and validation accuracy. {BAND}", "Loss and accuracy", learning),
        (
            f"{stem}-difference",
            f"G3, {name}: how far each step moves the state of the trained networks. Left: divided by the number of elements, as "
            f"the paper plots it, which makes any difference small; right: relative to the state.{cut} {BAND}",
            "Difference norm over steps in two scalings",
            differences,
        ),
        (
            f"{stem}-adjoint",
            f"{name}: the last step's relative difference and the residual of the adjoint equation through training. {BAND}",
            "Difference of the last step and adjoint residual over epochs",
            adjoint,
        ),
    ]
    count = sum(len(group.of(method)) for group in groups for method in group.gradients())
    modes = " and ".join(f"the {group.heading.lower()} mode" for group in groups)
    return [
        Figure(stem, caption, f"{alt} of all methods on {name} in {modes}.", partial(draw, groups), count)
        for stem, caption, alt, draw in drawn
    ]


def learning(groups: Sequence[Group]) -> Picture:
    """Training loss and validation accuracy over epochs, a row a mode."""
    picture, rows = grid(len(groups), 2)
    for group, axes in zip(groups, rows, strict=True):
        title = group.heading
        axes[0].set(title=f"{title}: training loss", xlabel="epoch", ylabel="cross-entropy", yscale="log")
        axes[1].set(title=f"{title}: validation", xlabel="epoch", ylabel="accuracy, %")
        lines(axes[0], group, group.gradients(), lambda trial: trial.result["training_loss"], by_epoch=False)
        lines(axes[1], group, group.gradients(), lambda trial: [100 * value for value in trial.seen("accuracy")])
        if alone := group.of("baseline"):
            axes[1].axhline(float(np.mean([trial.validation for trial in alone])), **DOTTED)
    legend(picture, rows, baseline=DOTTED)
    return picture


def differences(groups: Sequence[Group]) -> Picture:
    """How far each step moves the state of the trained networks, in the paper's scaling and relative, a row a mode."""
    picture, rows = grid(len(groups), 2)
    for group, axes in zip(groups, rows, strict=True):
        title = group.heading
        axes[0].set(title=f"{title}: as the paper plots it", xlabel="step t", ylabel="‖hₜ − hₜ₋₁‖ / elements")
        axes[1].set(title=f"{title}: relative", xlabel="step t", ylabel="‖hₜ − hₜ₋₁‖ / ‖hₜ‖", yscale="log")
        for axis, key in zip(axes, ("scaled", "relative"), strict=True):
            lines(axis, group, group.gradients(), lambda trial, key=key: trial.result["difference"][key], by_epoch=False, first=1)
        axes[0].set_ylim(0, 1.05 * ceiling(group) if clipped(group) else None)
        axes[1].axhline(STEADY, **DOTTED)
    legend(picture, rows, **{"1 %": DOTTED})
    return picture


def heights(group: Group) -> list[float]:
    """The highest of each method's curve in the paper's scaling."""
    means = (stacked([trial.result["difference"]["scaled"] for trial in group.of(method)]) for method in group.gradients())
    some = [values[:, np.isfinite(values).any(axis=0)] for values in means]  # a step that nobody measured has no mean
    return [float(np.nanmax(np.nanmean(values, axis=0))) for values in some if values.size]


def ceiling(group: Group) -> float:
    """Three times the middle height: what is above hides all the others."""
    return 3 * float(np.median(heights(group) or [np.inf]))


def clipped(group: Group) -> bool:
    return any(height > 2 * ceiling(group) for height in heights(group))


def adjoint(groups: Sequence[Group]) -> Picture:
    """The relative difference of the last step, and the residual of the adjoint equation, through training, a row a mode."""
    picture, rows = grid(len(groups), 2)
    for group, axes in zip(groups, rows, strict=True):
        title = group.heading
        axes[0].set(title=f"{title}: last step", xlabel="epoch", yscale="log", ylim=(1e-5, 2))
        axes[0].set_ylabel(r"$\|h_T - h_{T-1}\|\,/\,\|h_T\|$")
        axes[1].set(title=f"{title}: adjoint residual", xlabel="epoch", ylabel="‖b − (I − Jᵀ)z‖ / ‖b‖", yscale="log")
        lines(axes[0], group, group.gradients(), lambda trial: trial.seen("difference_relative"))
        solving = [method for method in group.gradients() if method in ADJOINT]
        lines(axes[1], group, solving, lambda trial: trial.seen("adjoint_residual"))
        axes[1].axhline(1, **DOTTED)
    legend(picture, rows, **{"as large as b": DOTTED})
    return picture


def lines(axis: Axes, group: Group, methods: Sequence[str], series: Series, by_epoch: bool = True, first: int = 0) -> None:
    """A line a method: over the validated epochs, or over first, first + 1, … What was not measured leaves a gap.

    Mean and standard deviation over seeds; of the logarithms where the axis has them, so that one seed that blew up does not
    hide the rest.
    """
    for method in methods:
        trials = group.of(method)
        values = stacked([series(trial) for trial in trials])
        some = np.isfinite(values).any(axis=0)
        if not some.any():
            continue
        epochs: Sequence[int] = max((trial.seen("epoch") for trial in trials), key=len)
        x = np.asarray(epochs if by_epoch else range(first, first + values.shape[1]))[some]
        logarithmic = axis.get_yscale() == "log"
        mean, low, high = middle_and_band(np.log(values[:, some]) if logarithmic else values[:, some])
        if logarithmic:
            mean, low, high = np.exp(mean), np.exp(low), np.exp(high)
        band = (low.tolist(), high.tolist()) if len(trials) > 1 else None
        curve(axis, method, x.tolist(), mean.tolist(), band)
        if band is not None:
            axis.collections[-1].set_alpha(0.07)  # eight of them may lie on each other


def middle_and_band(values: Array) -> tuple[Array, Array, Array]:
    """Mean over the rows, and a standard deviation below and above it."""
    mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    return mean, mean - spread, mean + spread


def diagnoses(found: Sorted) -> list[Table]:
    return [diagnosis(group) for group in found.groups if group.gradients()]


def diagnosis(group: Group) -> Table:
    """Difference norm in both scalings, ρ(J), adjoint residual and the verdict of sg.diagnose, a row a method."""
    trials = [trial for method in group.gradients() for trial in group.of(method)]
    first = middle(trials, lambda trial: trial.result.get("spectral_radius_initial"))
    return Table(
        f"citation-g3-diagnosis-{group.graph}-{group.mode}",
        f"{group.title}: the trained networks" + ("." if first is None else f"; before training ρ(J) = {short(first)}."),
        ("method", "last step", "the paper's", "ρ(J)", "‖J‖₂", "σ_min(I−J)", "residual", "verdict"),
        tuple((label(method), *diagnosed(group.of(method))) for method in group.gradients()),
    )


def diagnosed(trials: Sequence[CitationTrial]) -> tuple[str, ...]:
    found = next((trial.result["diagnosis"] for trial in trials if trial.result.get("diagnosis")), None)
    return (
        short(middle(trials, lambda trial: trial.latest("difference_relative"))),
        short(middle(trials, lambda trial: trial.latest("difference_scaled"))),
        short(middle(trials, lambda trial: trial.result.get("spectral_radius"))),
        bound(found, "norm", "≥"),
        bound(found, "min_singular_value", "≤"),
        short(middle(trials, lambda trial: trial.latest("adjoint_residual"))),
        "–"
        if found is None
        else "trust"
        if found["trustworthy"]
        else ", ".join(f.replace(" ", NO_BREAK) for f in found["findings"]),
    )


def bound(found: dict[str, Any] | None, name: str, sign: str) -> str:
    """A number that sg.diagnose did not settle is a bound."""
    if found is None:
        return "–"
    return f"{sign} {short(found[name])}" if name in found["not_settled"] else short(found[name])
