"""G2: ARTBP with one random cut on Cora: uniform below truncated Poisson, both below Neumann-RBP (validation accuracy)."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

from steadygrad.paper.report.citation.trials import PAPER, seeds_of_pair, validation
from steadygrad.paper.report.trial import Group
from steadygrad.paper.report.verdicts import Gap, Outcome, all_of

METHODS = ("artbp-uniform", "artbp-poisson", "neumann-rbp")
PAPER_SEEDS = 10


def gaps(place: Group) -> list[Gap]:
    """By how much each is above the one before."""
    return [place.gap(later, earlier, validation) for earlier, later in pairwise(METHODS)]


def order(place: Group) -> Outcome:
    return all_of(gap.above for gap in gaps(place))


seeds = partial(seeds_of_pair, methods=METHODS)


def paper_errors() -> float:
    """By how many standard errors of a difference of two means the paper's Neumann-RBP exceeds its Poisson ARTBP."""
    (low, a), (high, b) = ((float(x) for x in PAPER["cora"][m].split(" ± ")) for m in METHODS[1:])
    return (high - low) / math.sqrt((a * a + b * b) / PAPER_SEEDS)
