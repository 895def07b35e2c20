"""What the records say on claims G1 to G3 of the paper: a judgement a graph and mode, and the verdict of all together."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from steadygrad.report.citation.trials import (
    LEVEL,
    MODES,
    NAMES,
    TITLES,
    Difference,
    Group,
    Sorted,
    Trial,
    difference,
    label,
    middle,
)
from steadygrad.report.finding import Finding, missing, verdict
from steadygrad.report.section import Claim
from steadygrad.report.text import number, percent

WORSE = ("baseline", "bptt", "rbp", "cg-rbp")
"""G1: what Neumann-RBP and TBPTT are to beat."""
PAPER_EPOCHS = 2000
STEADY = 0.01
"""G3: steady is where the last step moves the state by less than this share of its norm."""
CLOSE = 5.0
"""G3: curves go together if the mean of validation accuracies differs by less than this, in points, at the last epoch."""


Judge = Callable[[Group], Finding]


def claims(found: Sorted) -> tuple[Claim, ...]:
    return (
        claim(
            found,
            "G1",
            "Test accuracy from 1 % of labels: Neumann-RBP is level with TBPTT (limit: a point, or two standard errors), both "
            "are above all others (by two standard errors).",
            "Cora: Neumann-RBP 46.63, TBPTT 46.55, best other 39.96. Pubmed: 53.56, 53.41, 49.12.",
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
            f"The state becomes steady (our limit: {percent(STEADY)} a step), so that Neumann-RBP goes with TBPTT through "
            f"training (our limit: validation accuracies end within {number(CLOSE)} points).",
            "curves only; difference norm almost zero",
            g3,
            ("cora", "pubmed"),
        ),
    )


def claim(found: Sorted, name: str, text: str, paper: str, judge: Judge, graphs: Sequence[str]) -> Claim:
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
        if False in holds:
            reasons += behind(name, mode, groups)
    return Claim(name, text, paper, " ".join(ours), verdict(modes), " ".join(reasons))


def behind(name: str, mode: str, groups: Sequence[Group]) -> list[str]:
    """Why a claim fails in a mode, as far as the records tell."""
    if mode == "as-published":
        moved = [value for group in groups if (value := movement(group)) is not None]
        if name != "G3" and moved and min(moved) > STEADY:
            return ["As published the state is not steady (G3), so the adjoint equation is not that of the loss."]
        return []
    if name == "G1" and any(beats(group, "bptt", "neumann-rbp") for group in groups):
        return ["Corrected, the exact gradient is the better one: K = 5 cuts the series off."]
    if name == "G2" and any(beats(group, "artbp-uniform", "neumann-rbp") for group in groups):
        return ["Corrected, the order is reversed: ARTBP is unbiased, and K = 5 is not."]
    return []


def beats(group: Group, one: str, other: str) -> bool:
    gap = difference(group, one, other, lambda trial: trial.validation)
    return gap is not None and gap.above


def g1(group: Group) -> Finding:
    ours = leaders(group)
    level = difference(group, "neumann-rbp", "tbptt", lambda trial: trial.test)
    gaps = {other: lead(group, other) for other in WORSE}
    if level is None or None in gaps.values():
        return missing("three seeds of TBPTT, Neumann-RBP, " + ", ".join(label(method) for method in WORSE), ours)
    rest = [f"{label(other)} ({gap})" for other, gap in gaps.items() if gap is not None and not gap.above]
    why = (
        f"Neumann-RBP minus TBPTT {level} over {level.seeds} seeds, {likeness(level)}; "
        + (f"not both above {', '.join(rest)}" if rest else "both above all others")
        + shorter(group)
    )
    return Finding(level.level and not rest, ours, why)


def lead(group: Group, other: str) -> Difference | None:
    """By how much the two exceed another method: the one that does so less."""
    both = [difference(group, one, other, lambda trial: trial.test) for one in ("neumann-rbp", "tbptt")]
    known = [gap for gap in both if gap is not None]
    return min(known, key=lambda gap: gap.mean - 2 * gap.error) if len(known) == len(both) else None


def likeness(gap: Difference) -> str:
    if abs(gap.mean) <= LEVEL:
        return "level"
    return "not told apart" if gap.level else "not level"


def leaders(group: Group) -> str:
    """The means that G1 is about, as the paper's are shown beside them."""
    means = {method: mean(group, method, lambda trial: trial.test) for method in ("neumann-rbp", "tbptt", *WORSE)}
    known = {method: value for method, value in means.items() if value is not None}
    shown = [f"{label(method)} {known[method]:.1f}" for method in ("neumann-rbp", "tbptt") if method in known]
    others = [method for method in WORSE if method in known]
    if others:
        best = max(others, key=lambda method: known[method])
        shown.append(f"best other {known[best]:.1f} ({label(best)})")
    return ", ".join(shown)


def g2(group: Group) -> Finding:
    methods = {"artbp-uniform": "uniform", "artbp-poisson": "Poisson", "neumann-rbp": "Neumann-RBP"}
    means = {name: mean(group, method, lambda trial: trial.validation) for method, name in methods.items()}
    ours = ", ".join(f"{name} {value:.1f}" for name, value in means.items() if value is not None)
    rise = difference(group, "artbp-poisson", "artbp-uniform", lambda trial: trial.validation)
    rest = difference(group, "neumann-rbp", "artbp-poisson", lambda trial: trial.validation)
    if rise is None or rest is None:
        return missing("three seeds of both kinds of ARTBP and of Neumann-RBP", ours)
    why = f"Poisson minus uniform {rise}, Neumann-RBP minus Poisson {rest} over {rest.seeds} seeds" + shorter(group)
    return Finding(rise.above and rest.above, ours, why)


def g3(group: Group) -> Finding:
    pair = {method: group.of(method) for method in ("neumann-rbp", "tbptt")}
    trials = [trial for of_method in pair.values() for trial in of_method]
    moved = movement(group)
    scaled = middle(trials, lambda trial: trial.last("difference_scaled"))
    if not all(pair.values()) or moved is None or scaled is None:
        return missing("Neumann-RBP and TBPTT")
    apart = abs(final(pair["neumann-rbp"]) - final(pair["tbptt"]))
    ours = f"last step {percent(float(f'{moved:.2g}'))} of the norm (paper's scaling: {scaled:.1e})"
    rho = middle(trials, lambda trial: trial.result.get("spectral_radius"))
    why = (
        ("steady" if moved < STEADY else "not steady")
        + ("" if rho is None else f", ρ(J) = {rho:.2f}")
        + f"; accuracies {apart:.1f} points apart"
        + shorter(group)
    )
    return Finding(moved < STEADY and apart < CLOSE, ours, why)


def movement(group: Group) -> float | None:
    """How far the last step moves the state, relative to its norm: the median of Neumann-RBP's and TBPTT's trials."""
    return middle([*group.of("neumann-rbp"), *group.of("tbptt")], lambda trial: trial.last("difference_relative"))


def final(trials: Sequence[Trial]) -> float:
    return 100 * statistics.fmean(trial.last("accuracy") for trial in trials)


def mean(group: Group, method: str, measure: Callable[[Trial], float]) -> float | None:
    trials = group.of(method)
    return statistics.fmean(map(measure, trials)) if trials else None


def shorter(group: Group) -> str:
    if group.mode == "corrected" or group.epochs >= PAPER_EPOCHS:
        return ""
    return f" ({group.epochs} epochs instead of {number(PAPER_EPOCHS)})"
