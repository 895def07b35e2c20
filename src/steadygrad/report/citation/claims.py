"""What the records say on claims G1 to G3 of the paper: a judgement a mode, and the verdict of both together."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steadygrad.report.citation.trials import (
    MODES,
    NAMES,
    TITLES,
    Group,
    Sorted,
    Trial,
    difference,
    label,
    middle,
)
from steadygrad.report.section import Claim
from steadygrad.report.text import number, percent

PAPER = {
    "cora": {
        "baseline": "39.96 ± 3.4",
        "bptt": "24.48 ± 6.6",
        "tbptt": "46.55 ± 6.4",
        "artbp-uniform": "27.88 ± 3.2",
        "artbp-poisson": "42.22 ± 7.1",
        "rbp": "29.25 ± 3.3",
        "cg-rbp": "39.26 ± 6.5",
        "neumann-rbp": "46.63 ± 8.3",
    },
    "pubmed": {
        "baseline": "40.41 ± 3.1",
        "bptt": "47.05 ± 3.1",
        "tbptt": "53.41 ± 6.7",
        "rbp": "48.55 ± 3.4",
        "cg-rbp": "49.12 ± 2.9",
        "neumann-rbp": "53.56 ± 5.3",
    },
}
"""The paper's accuracies; those of ARTBP are validation accuracies by its own words."""
WORSE = ("baseline", "bptt", "rbp", "cg-rbp")
"""G1: what Neumann-RBP and TBPTT are to beat."""
PAPER_EPOCHS = 2000
STEADY = 0.01
"""G3: steady is where the last step moves the state by less than this share of its norm."""
CLOSE = 5.0
"""G3: curves go together if the mean of validation accuracies differs by less than this, in points, at the last epoch."""


@dataclass(frozen=True)
class Finding:
    """What one graph in one mode says: whether the claim holds (None where records are missing), the numbers, and why."""

    holds: bool | None
    ours: str
    why: str


def claims(found: Sorted) -> tuple[Claim, ...]:
    return (
        claim(
            found,
            "G1",
            "Test accuracy from 1 % of labels: Neumann-RBP is level with TBPTT, both are above all others.",
            "Cora: Neumann-RBP 46.63, TBPTT 46.55, best other 39.96. Pubmed: 53.56, 53.41, 49.12",
            g1,
            ("cora", "pubmed"),
        ),
        claim(
            found,
            "G2",
            "ARTBP with one random cut on Cora: uniform below Poisson, both below Neumann-RBP (validation accuracy).",
            "uniform 27.88, Poisson 42.22, Neumann-RBP 46.63",
            g2,
            ("cora",),
        ),
        claim(
            found,
            "G3",
            "The state becomes steady, so that Neumann-RBP goes with TBPTT through training.",
            "curves only; difference norm almost zero",
            g3,
            ("cora", "pubmed"),
        ),
    )


def claim(found: Sorted, name: str, text: str, paper: str, judge: Callable[[Group], Finding], graphs: Sequence[str]) -> Claim:
    """Each graph and mode judged on its own, a mode by all its graphs, and the verdict of both modes."""
    ours: list[str] = []
    reasons: list[str] = []
    modes: list[bool] = []
    for mode in MODES:
        groups = [group for graph in graphs if (group := found.of(graph, mode)) is not None]
        findings = {group.graph: judge(group) for group in groups}
        ours += [f"{NAMES[graph]}, {TITLES[mode].lower()}: {f.ours}." for graph, f in findings.items() if f.ours]
        reasons += [f"{NAMES[graph]}, {TITLES[mode].lower()}: {f.why}." for graph, f in findings.items()]
        holds = [f.holds for f in findings.values() if f.holds is not None]
        if not groups:
            reasons.append(f"{TITLES[mode]}: no trials on {' and '.join(NAMES[graph] for graph in graphs)}.")
        if holds:
            modes.append(all(holds))
    return Claim(name, text, paper, " ".join(ours), verdict(modes), " ".join(reasons))


def verdict(holds: Sequence[bool]) -> str:
    """Of one mode alone, a claim that holds is reproduced in one mode, and one that does not is open: the other is missing."""
    if len(holds) < len(MODES):
        return "reproduced in one mode" if any(holds) else "no data"
    return "reproduced" if all(holds) else "reproduced in one mode" if any(holds) else "not reproduced"


def g1(group: Group) -> Finding:
    ours = means(group, ("neumann-rbp", "tbptt", *WORSE), lambda trial: trial.test)
    level = difference(group, "neumann-rbp", "tbptt", lambda trial: trial.test)
    gaps = {other: difference(group, "neumann-rbp", other, lambda trial: trial.test) for other in WORSE}
    if level is None or None in gaps.values():
        return missing(ours, "three seeds of TBPTT, Neumann-RBP, " + ", ".join(label(method) for method in WORSE))
    beaten = [label(other) for other, gap in gaps.items() if gap is not None and gap.above]
    rest = [f"{label(other)} ({points(gap.mean)})" for other, gap in gaps.items() if gap is not None and not gap.above]
    why = (
        f"Neumann-RBP minus TBPTT {points(level.mean)} ± {level.error:.1f} over {level.seeds} seeds, "
        f"{'level' if level.level else 'not level'}; clearly above {', '.join(beaten) or 'none'}"
        + (f", not above {', '.join(rest)}" if rest else "")
        + shorter(group)
    )
    return Finding(level.level and not rest, ours, why)


def g2(group: Group) -> Finding:
    ours = means(group, ("artbp-uniform", "artbp-poisson", "neumann-rbp"), lambda trial: trial.validation)
    rise = difference(group, "artbp-poisson", "artbp-uniform", lambda trial: trial.validation)
    rest = difference(group, "neumann-rbp", "artbp-poisson", lambda trial: trial.validation)
    if rise is None or rest is None:
        return missing(ours, "three seeds of both kinds of ARTBP and of Neumann-RBP")
    why = (
        f"Poisson minus uniform {points(rise.mean)} ± {rise.error:.1f}, Neumann-RBP minus Poisson {points(rest.mean)} ± "
        f"{rest.error:.1f} over {rest.seeds} seeds" + shorter(group)
    )
    return Finding(rise.above and rest.above, ours, why)


def g3(group: Group) -> Finding:
    pair = {method: group.of(method) for method in ("neumann-rbp", "tbptt")}
    trials = [trial for of_method in pair.values() for trial in of_method]
    moved = middle(trials, lambda trial: trial.last("difference_relative"))
    scaled = middle(trials, lambda trial: trial.last("difference_scaled"))
    if not all(pair.values()) or moved is None or scaled is None:
        return missing("", "Neumann-RBP and TBPTT")
    apart = abs(final(pair["neumann-rbp"]) - final(pair["tbptt"]))
    ours = f"last step moves the state by {percent(float(f'{moved:.2g}'))} of its norm ({scaled:.1e} in the paper's scaling)"
    rho = middle(trials, lambda trial: trial.result.get("spectral_radius"))
    why = (
        f"{'steady' if moved < STEADY else 'not steady'} (our tolerance: {percent(STEADY)})"
        + ("" if rho is None else f", ρ(J) = {rho:.2f}")
        + f"; validation accuracies end {apart:.1f} points apart (our limit: {number(CLOSE)})"
        + shorter(group)
    )
    return Finding(moved < STEADY and apart < CLOSE, ours, why)


def final(trials: Sequence[Trial]) -> float:
    return 100 * statistics.fmean(trial.last("accuracy") for trial in trials)


def missing(ours: str, what: str) -> Finding:
    return Finding(None, ours, f"no verdict, since it takes {what}")


def means(group: Group, methods: Sequence[str], measure: Callable[[Trial], float]) -> str:
    found = [(label(method), [measure(trial) for trial in group.of(method)]) for method in methods]
    return ", ".join(f"{name} {statistics.fmean(values):.1f}" for name, values in found if values)


def points(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def shorter(group: Group) -> str:
    if group.mode == "corrected" or group.epochs >= PAPER_EPOCHS:
        return ""
    return f" ({group.epochs} epochs instead of {number(PAPER_EPOCHS)})"
