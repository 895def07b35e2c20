"""G1: accuracy from 1 % of labels: Neumann-RBP is level with TBPTT, and both are above all others."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace

from steadygrad.paper.report.citation.trials import PAIR, longer, seeds_of_pair, test
from steadygrad.paper.report.sorting import Found
from steadygrad.paper.report.style import look
from steadygrad.paper.report.trial import Group
from steadygrad.paper.report.verdicts import Findings, Outcome, all_of

WORSE = ("bptt", "rbp-uniform", "cg-rbp")
"""What Neumann-RBP and TBPTT are to beat, besides a baseline."""
ATTEMPTS = (*PAIR, "cg-rbp", "rbp-uniform")
"""The methods that take K steps towards the adjoint."""
LEVEL = 1.0
"""Two methods are level where they differ by less than this, in points."""
FAR = 5.0
"""With too few seeds for a standard error, two methods are apart that differ by more than this, in points."""


def level(place: Group) -> Outcome:
    return place.gap(*PAIR, test).level(LEVEL)


def leads(place: Group) -> Outcome:
    """Both above every other."""
    return all_of(place.gap(one, other, test).above for one in PAIR for other in rivals(place))


def rivals(place: Group) -> list[str]:
    """The released code's own baseline where it was run, else scikit-learn's, which is stronger."""
    return [*WORSE, "linear" if place.of("linear") else "baseline"]


def beside_longer(found: Found, graph: str, rule: Callable[[Group], Outcome], few: Callable[[Group], Outcome]) -> Findings:
    """Judged by the rule; the longest of the trials that are too few for it speak by `few`."""
    published, corrected = found.judged(rule, graph, seeds_of_pair)
    trend = [few(one) for one in longer(found, graph, published)] or [Outcome.MISSING]
    return replace(published, longer=trend[0]), corrected


def near(place: Group) -> Outcome:
    gaps = place.gap(*PAIR, test).seeds
    return Outcome.of(max(map(abs, gaps)) <= FAR if gaps else None)


def ahead(place: Group) -> Outcome:
    """Both above every other that has a trial, in each seed: what too few seeds for a verdict can say."""
    gaps = [gap for one in PAIR for other in rivals(place) for gap in place.gap(one, other, test).seeds]
    return Outcome.of(min(gaps) > 0 if gaps else None)


def best(place: Group) -> str:
    """The best of the others, with its accuracy in the seeds that TBPTT has too."""
    pairs = {method: place.pairs(method, other=PAIR[1]) for method in rivals(place)}
    known = {statistics.fmean(test(trial) for trial, _ in of): method for method, of in pairs.items() if of}
    return f"best other {max(known):.1f} ({look(known[max(known)]).label})" if known else ""


def losers(place: Group) -> str:
    """The others that are not below both, with the smaller lead."""
    leads = {other: [place.gap(one, other, test) for one in PAIR] for other in rivals(place)}
    known = {other: [gap for gap in gaps if gap.above in (Outcome.NO, Outcome.NOISE)] for other, gaps in leads.items()}
    return ", ".join(f"{look(m).label} ({min(gaps, key=lambda gap: gap.mean)})" for m, gaps in known.items() if gaps)


def slowest(place: Group) -> float | None:
    """ρ(J) in the corrected mode, by which the slowest mode of the adjoint shrinks a step."""
    return place.median("auto" if place.of("auto") else "neumann-rbp", "spectral_radius")
