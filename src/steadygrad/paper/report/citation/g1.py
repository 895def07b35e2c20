"""G1: accuracy from 1 % of labels: Neumann-RBP is level with TBPTT, and both are above all others."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from steadygrad.paper.report.citation.trials import NAMES, PAIR, PAPER, gradients, mean, seeds_of_pair, test, validation
from steadygrad.paper.report.section import Findings
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.style import CHECKPOINTED, look, ordered
from steadygrad.paper.report.text import to
from steadygrad.paper.report.trial import TITLES, Group, Trial, middle
from steadygrad.paper.report.verdicts import SEEDS, Outcome, above, all_of

__all__ = ["NAMES", "gradients", "validation"]  # for the template
WORSE = ("bptt", "rbp-uniform", "cg-rbp")
"""What Neumann-RBP and TBPTT are to beat, besides a baseline."""
LEVEL = 1.0
"""Two methods are level where they differ by less than this, in points."""
FAR = 5.0
"""With too few seeds for a standard error, two methods are apart that differ by more than this, in points."""


def level(place: Group) -> Outcome:
    gap = place.gap(*PAIR, test)
    return Outcome.MISSING if gap is None else gap.level(LEVEL)


def leads(place: Group) -> Outcome:
    """Both above every other."""
    return all_of(above(place.gap(one, other, test)) for one in PAIR for other in rivals(place))


def rivals(place: Group) -> list[str]:
    """The released code's own baseline where it was run, else scikit-learn's, which is stronger."""
    return [*WORSE, "linear" if place.of("linear") else "baseline"]


def levels(found: Found, graph: str) -> Findings:
    return beside_longer(found, graph, level, near)


def leaders(found: Found, graph: str) -> Findings:
    return beside_longer(found, graph, leads, ahead)


def beside_longer(found: Found, graph: str, rule: Callable[[Group], Outcome], few: Callable[[Group], Outcome]) -> Findings:
    """Judged by the rule; the longest of the trials that are too few for it speak by `few`."""
    published, corrected = found.judged(rule, graph, seeds_of_pair)
    longer = more(found, graph, published.of) if published else []
    return replace(published, longer=few(longer[0])) if published and longer else published, corrected


def more(found: Found, graph: str, place: Group) -> list[Group]:
    """Longer trials than those that are judged, too few for a verdict, the longest first."""
    return [one for one in found.lengths(graph) if one is not place and 0 < seeds_of_pair(one) < SEEDS]


def near(place: Group) -> Outcome:
    gaps = place.gaps(*PAIR, test)
    return Outcome.of(max(map(abs, gaps)) <= FAR if gaps else None)


def ahead(place: Group) -> Outcome:
    """Both above every other that has a trial, in each seed: what too few seeds for a verdict can say."""
    gaps = [gap for one in PAIR for other in rivals(place) for gap in place.gaps(one, other, test)]
    return Outcome.of(min(gaps) > 0 if gaps else None)


def papers(graph: str, *methods: str) -> str:
    """The paper's accuracies without their deviations."""
    return " and ".join(PAPER[graph][method].partition(" ")[0] for method in methods)


def means(place: Group) -> str:
    return " and ".join(f"{value:.1f}" for method in PAIR if (value := mean(place, method, test)) is not None)


def best(place: Group) -> str:
    """The best of the others, with its accuracy."""
    known = {value: method for method in rivals(place) if (value := mean(place, method, test)) is not None}
    return f"best other {max(known):.1f} ({look(known[max(known)]).label})" if known else ""


def losers(place: Group) -> str:
    """The others that are not below both, with the smaller lead."""
    leads = {other: [place.gap(one, other, test) for one in PAIR] for other in rivals(place)}
    known = {other: [gap for gap in gaps if gap and gap.above is not Outcome.YES] for other, gaps in leads.items()}
    return ", ".join(f"{look(m).label} ({min(gaps, key=lambda gap: gap.mean)})" for m, gaps in known.items() if gaps)


def spread(place: Group, method: str, measure: Callable[[Trial], float]) -> str:
    """Mean and standard deviation over seeds."""
    values = list(map(measure, place.of(method)))
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{deviation}" if values else "–"


def tried(places: Sequence[Group]) -> list[str]:
    return ordered([trial.method for place in places for trial in place.trials])


def fewer(places: Sequence[Group], method: str) -> str:
    """How many seeds BPTT in less memory has, where that is not as many as the others."""
    found = sorted({len(place.of(method)) for place in places} - {0}) if method in CHECKPOINTED else []
    return f", {to(str(found[0]), str(found[-1]))} seed{'' if found[-1] == 1 else 's'}" if found else ""


def counts(places: Sequence[Group]) -> str:
    """How many seeds the methods have: "as published: 10; corrected: 1 to 3" while it is running."""
    counted = [sorted({len(p.of(m)) for m in p.methods() if m not in CHECKPOINTED} or {0}) for p in places]
    spans = [to(str(of[0]), str(of[-1])) for of in counted]
    return "; ".join(f"{TITLES[place.mode].lower()}: {span}" for place, span in zip(places, spans, strict=True))


def changed(place: Group, other: Group) -> str:
    """What is not as in the place: "epochs 500"."""
    names = [k for k, value in place.setting.items() if other.setting.get(k) != value and k != "validate_every"]
    return ", ".join(f"{name} {other.setting.get(name)}" for name in names)


def kept(found: Found) -> list[dict[str, Any]]:
    """What K steps leave of the adjoint's slowest mode in the corrected mode, what that costs beside auto, and what the steady
    state is worth beside APPNP, which stops after ten steps."""
    made: list[dict[str, Any]] = []
    for place in (place for place in found.all if place.mode == "corrected"):
        rho = middle(place.of("auto") or place.of("neumann-rbp"), lambda trial: trial.result.get("spectral_radius"))
        K = place.setting.get("steps")
        if rho is not None and K is not None:
            gaps = {m: place.gap(m, "auto", test) for m in (*PAIR, "cg-rbp", "rbp-uniform")}
            shares = [round(share, 2) for share in (1 - rho ** (K + 1), 1 - rho**K, rho**K)]
            known = {method: gap for method, gap in gaps.items() if gap}
            made.append(
                {"place": place, "rho": rho, "K": K, "shares": shares, "gaps": known, "appnp": place.gap("auto", "appnp", test)}
            )
    return made
