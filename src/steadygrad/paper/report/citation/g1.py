"""G1: accuracy from 1 % of labels: Neumann-RBP is level with TBPTT, and both are above all others."""

from __future__ import annotations

from typing import Any

from steadygrad.paper.report.citation.trials import NAMES, PAPER, Group, Sorted, in_order, label, tested, validated
from steadygrad.paper.report.section import Finding, Part, Table, judged
from steadygrad.paper.report.style import CHECKPOINTED
from steadygrad.paper.report.text import percent, plural
from steadygrad.paper.report.trial import TITLES, middle
from steadygrad.paper.report.verdicts import SEEDS, Outcome, above, all_of

PAIR = ("neumann-rbp", "tbptt")
WORSE = ("bptt", "rbp-uniform", "cg-rbp")
"""What Neumann-RBP and TBPTT are to beat, besides a baseline."""
BASELINES = ("linear", "baseline")
"""The released code's own where it was run, else scikit-learn's, which is stronger."""
LEVEL = 1.0
"""Two methods are level where they differ by less than this, in points."""
FAR = 5.0
"""With too few seeds for a standard error, two methods are apart that differ by more than this, in points."""
HEADS = {"as-published": "published", "corrected": "corrected"}


def parts(found: Sorted) -> list[Part]:
    letters = {"cora": "ab", "pubmed": "cd"}
    return [
        rule(found, graph, letter) for graph, of in letters.items() for rule, letter in zip((levels, leaders), of, strict=True)
    ]


def levels(found: Sorted, graph: str, letter: str) -> Part:
    group, fixed = found.judged(graph, level)
    published, why = None, ""
    if group is not None:
        why = f"Neumann-RBP minus TBPTT {group.gap(*PAIR, test)} points"
        longer = more(found, graph, group)
        for one in longer:
            why += f"; after {one.setting['epochs']:,} epochs, {plural(one.seeds(*PAIR), 'seed')}: {means(one)}"
        other = near(longer[0]) if longer else Outcome.MISSING
        published = Finding(level(group), means(group), group.seeds(*PAIR), group.length, longer=other)
    corrected = Finding(level(fixed), means(fixed), fixed.seeds(*PAIR)) if fixed else None
    paper = f"{number(graph, 'neumann-rbp')} and {number(graph, 'tbptt')}"
    text = f"{NAMES[graph]}: Neumann-RBP is level with TBPTT"
    return judged(f"G1{letter}", text, paper, published, corrected, why and f"{why}.")


def leaders(found: Sorted, graph: str, letter: str) -> Part:
    group, fixed = found.judged(graph, leads)
    published = corrected = None
    why = ""
    if group is not None:
        why = f"Not above {losers(group)}." if losers(group) else ""
        longer = more(found, graph, group)
        if longer:
            counted = plural(longer[0].seeds(*PAIR), "seed")
            why += f" After {longer[0].setting['epochs']:,} epochs, {counted}: {means(longer[0])}, {best_words(longer[0])}."
        other = ahead(longer[0]) if longer else Outcome.MISSING
        published = Finding(leads(group), best_words(group), group.seeds(*PAIR), group.length, longer=other)
    if fixed is not None:
        words = f"not above {losers(fixed)}; K = 5 cuts the series off" if losers(fixed) else ""
        corrected = Finding(leads(fixed), words, fixed.seeds(*PAIR))
    best = max((m for m in PAPER[graph] if m in (*WORSE, "baseline")), key=lambda m: PAPER[graph][m])
    text = f"{NAMES[graph]}: both are above all others"
    return judged(f"G1{letter}", text, f"best other {number(graph, best)}", published, corrected, why)


def number(graph: str, method: str) -> str:
    return PAPER[graph][method].partition(" ")[0]


def test(trial: Any) -> float:
    return trial.test


def level(group: Group) -> Outcome:
    gap = group.gap(*PAIR, test)
    return Outcome.MISSING if gap is None else gap.level(LEVEL)


def more(found: Sorted, graph: str, judged: Group | None) -> list[Group]:
    """Longer trials than those that are judged, too few for a verdict, the longest first."""
    lengths = found.lengths(graph, "as-published")
    return [g for g in lengths if g is not judged and 0 < g.seeds(*PAIR) < SEEDS]


def near(group: Group) -> Outcome:
    gaps = group.gaps(*PAIR, test)
    return Outcome.of(max(map(abs, gaps)) <= FAR) if gaps else Outcome.MISSING


def rivals(group: Group) -> list[str]:
    return [*WORSE, next((method for method in BASELINES if group.of(method)), "baseline")]


def leads(group: Group) -> Outcome:
    """Both above every other."""
    return all_of(above(group.gap(one, other, test)) for one in PAIR for other in rivals(group))


def ahead(group: Group) -> Outcome:
    """Both above every other that has a trial, in each seed: what too few seeds for a verdict can say."""
    gaps = [gap for one in PAIR for other in rivals(group) for gap in group.gaps(one, other, test)]
    return Outcome.of(min(gaps) > 0 if gaps else None)


def losers(group: Group) -> str:
    """The others that are not below both, with the smaller lead."""
    shown: list[str] = []
    for other in rivals(group):
        gaps = [group.gap(one, other, test) for one in PAIR]
        known = [gap for gap in gaps if gap is not None and gap.above is not Outcome.YES]
        if known:
            shown.append(f"{label(other)} ({min(known, key=lambda gap: gap.mean)})")
    return ", ".join(shown)


def means(group: Group) -> str:
    return " and ".join(f"{value:.1f}" for m in PAIR if (value := group.mean(m, test)) is not None)


def best_words(group: Group) -> str:
    known = {m: value for m in rivals(group) if (value := group.mean(m, test)) is not None}
    best = max(known, key=lambda method: known[method], default="")
    return f"best other {known[best]:.1f} ({label(best)})" if best else ""


def tables(found: Sorted) -> list[Table]:
    return [table(found, graph) for graph in found.graphs]


def table(found: Sorted, graph: str) -> Table:
    """Test accuracy, and the best validation accuracy beside it, in both modes and in the paper."""
    groups = found.on(graph)
    rows: list[tuple[str, ...]] = []
    for method in in_order([trial.method for group in groups for trial in group.trials]):
        cells = [f(group.of(method)) for group in groups for f in (tested, validated)]
        fewer = sorted({len(group.of(method)) for group in groups} - {0}) if method in CHECKPOINTED else []
        again = f", {' to '.join(dict.fromkeys(map(str, (fewer[0], fewer[-1]))))} seeds" if fewer else ""
        rows.append((label(method) + again, PAPER.get(graph, {}).get(method, "–"), *cells))
    heads = [head for group in groups for head in (f"{HEADS[group.mode]}: test", "validation")]
    return Table(
        f"citation-g1-{graph}",
        f"G1, {NAMES[graph]}: accuracy in percent, mean ± standard deviation over seeds ({'; '.join(map(counts, groups))}).",
        ("method", "paper", *heads),
        tuple(rows),
    )


def counts(group: Group) -> str:
    """How many seeds the methods of a group have: "as published: 10", or "as published: 1 to 3" while it is running."""
    found = sorted({len(group.of(method)) for method in group.methods() if method not in CHECKPOINTED})
    return f"{TITLES[group.mode].lower()}: {found[0]}" + (f" to {found[-1]}" if len(found) > 1 else "")


def longer(found: Sorted) -> Table:
    """The trials of gradient methods with other settings."""
    rows: list[tuple[str, ...]] = []
    for group in found.groups:
        for other in group.others:
            changed = [k for k, value in group.setting.items() if other.setting.get(k) != value and k != "validate_every"]
            words = ", ".join(f"{key} {other.setting.get(key)}" for key in changed)
            for trial in (t for method in other.gradients() for t in other.of(method)):
                losses = [f"{trial.result['training_loss'][place]:.2f}" for place in (0, -1)]
                place = (group.title, words, label(trial.method), str(trial.seed))
                rows.append((*place, *losses, str(trial.result["best_epoch"]), tested([trial]), validated([trial])))
    head = ("graph and mode", "setting", "method", "seed", "first loss", "last loss", "best epoch", "test", "validation")
    return Table("citation-g1-longer", "Trials with other settings than those of their mode.", head, tuple(rows))


def numbers(found: Sorted) -> dict[str, Any]:
    """What K steps leave of the adjoint's slowest mode in the corrected mode, what that costs, and what the steady state is
    worth beside APPNP, which stops after ten steps."""
    kept: list[dict[str, Any]] = []
    for group in (g for g in found.groups if g.mode == "corrected"):
        rho = middle(group.of("auto") or group.of("neumann-rbp"), lambda trial: trial.result.get("spectral_radius"))
        steps = group.setting.get("steps")
        if rho is None or steps is None:
            continue
        shares = (1 - rho ** (steps + 1), 1 - rho**steps, rho**steps)
        gaps = {m: group.gap(m, "auto", test) for m in ("neumann-rbp", "tbptt", "cg-rbp", "rbp-uniform")}
        kept.append(
            {
                "name": NAMES[group.graph],
                "rho": rho,
                "K": steps,
                "shares": [percent(round(share, 2)) for share in shares],
                "gaps": {label(method): str(gap) for method, gap in gaps.items() if gap is not None},
                "appnp": group.gap("auto", "appnp", test),
            }
        )
    return {"kept": kept}
