"""The rules by which a part of a claim gets its verdict; what is measured for it is in the file of the claim.

**As published** asks whether the paper's result comes out of the paper's settings. A run that is shorter than the paper's can
show that it does, but not that it does not: that takes the paper's length. **Where the assumptions hold** (corrected) asks
whether the statement is true in a setting of ours in which the method's assumptions are met. It has no length of the paper's.

Trials of different lengths or settings are never averaged. Where several lengths were run, the longest that has all that the
claim takes decides. A claim over several settings, of which some were run in full and others not, is decided by the full ones
where the others could not change it (see `over`), and else is as long as the shortest.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

AT_LENGTH = "reproduced at the paper's length"
SHORTER = "reproduced in a shorter run"
CONTRADICTED = "contradicted at length"
UNTESTED = "not tested at length"
READING = "depends on reading"
PREMISE = "premise fails"
UNDECIDED = "undecided"
NO_DATA = "no data"
PUBLISHED = (AT_LENGTH, SHORTER, CONTRADICTED, UNTESTED, READING, PREMISE, UNDECIDED, NO_DATA)
HOLDS, FAILS, NOT_APPLICABLE = "holds", "does not hold", "not applicable"
CORRECTED = (HOLDS, FAILS, UNDECIDED, NOT_APPLICABLE, NO_DATA)
AGAINST = "; trend: against it"
FEWER_AGAINST, FEWER_FOR = "; for it so far, longer trials against it", "; against it so far, longer trials for it"
WITHOUT_PREMISE = "; its premise fails so far"
"""These four: the trend of what was not tested at length."""
MARKS = {AT_LENGTH: "✓", SHORTER: "✓", HOLDS: "✓", CONTRADICTED: "✗", FAILS: "✗", PREMISE: "✗", READING: "◐"}
"""Before the words of a verdict, so that it does not hang on its colour; all others have a –."""
ERRORS = 2.0
"""Standard errors by which two means must differ to be told apart."""
SEEDS = 3
"""The fewest seeds from which a standard error means something."""


Seeds = int | tuple[int, int]
"""How many, or the fewest and the most where settings that are judged together differ in it."""


class Outcome(Enum):
    """What the numbers say of a statement: yes, no, or less than their noise; MISSING where nobody measured them."""

    YES = "yes"
    NO = "no"
    NOISE = "within noise"
    MISSING = "missing"

    @classmethod
    def of(cls, holds: bool | None) -> Outcome:
        return cls.MISSING if holds is None else cls.YES if holds else cls.NO


@dataclass(frozen=True)
class Length:
    """How long was trained, beside the paper."""

    ran: int
    paper: int
    unit: str
    besides: str = ""
    """what was run longer, or which settings these are: ", 100 at T = 1500, K = 50" """

    @property
    def full(self) -> bool:
        return self.ran >= self.paper

    def __str__(self) -> str:
        beside = "" if self.full else f" of {self.paper:,}"
        return f"{self.ran:,}{beside} {self.unit}{self.besides}"


@dataclass(frozen=True)
class Verdict:
    """A verdict, and on what it rests."""

    name: str
    rests: str = ""
    """length and seeds: "30 of 1,000 passes, 4 seeds" """


def mark(verdict: str) -> str:
    return MARKS.get(verdict, "–")


def kind(verdict: str) -> str:
    """The colour of a verdict, as a class of CSS."""
    return {"✓": "good", "✗": "bad", "◐": "half"}.get(mark(verdict), "open")


@dataclass(frozen=True)
class Finding:
    """What the trials of one setting say of a part of a claim, and on what that rests."""

    outcome: Outcome | tuple[Outcome, ...] = Outcome.MISSING
    """several where the paper can be read in several ways"""
    of: Any = None
    """what the words of the template speak of, mostly a group of trials; None: there are no words"""
    seeds: Seeds = 0
    length: Length | None = None
    """None: the claim has none (a cost of one step)"""
    premise: bool = True
    """whether what the claim supposes is there"""
    longer: Outcome = Outcome.MISSING
    """what fewer but longer trials say; where they say no, a yes of shorter ones counts for nothing"""
    applicable: bool = True
    """whether there is anything to correct"""

    @property
    def readings(self) -> list[Outcome]:
        """The outcome under each way to read the claim that is known."""
        found = self.outcome if isinstance(self.outcome, tuple) else (self.outcome,)
        return [outcome for outcome in found if outcome is not Outcome.MISSING]

    def as_published(self) -> Verdict:
        """The verdict on the paper's own settings."""
        if not self.readings:
            return Verdict(NO_DATA)
        full, trend = self.length is None or self.length.full, ""
        if not self.premise:
            name, trend = (PREMISE, "") if full else (UNTESTED, WITHOUT_PREMISE)
        elif Outcome.YES in self.readings and Outcome.NO in self.readings:
            name = READING
        elif Outcome.NOISE in self.readings:
            name = UNDECIDED
        elif Outcome.YES in self.readings:
            name = AT_LENGTH if full else UNTESTED if self.longer is Outcome.NO else SHORTER
            trend = FEWER_AGAINST if name == UNTESTED else ""
        else:
            name = CONTRADICTED if full else UNTESTED
            trend = "" if name != UNTESTED else FEWER_FOR if self.longer is Outcome.YES else AGAINST
        return Verdict(name, rests(self.length, self.seeds) + trend)

    def where_assumptions_hold(self) -> Verdict:
        """The verdict on the corrected setting."""
        names = {Outcome.YES: HOLDS, Outcome.NO: FAILS, Outcome.NOISE: UNDECIDED}
        if not self.applicable:
            return Verdict(NOT_APPLICABLE)
        return Verdict(names[self.readings[0]], rests(None, self.seeds)) if self.readings else Verdict(NO_DATA)


Findings = tuple[Finding, Finding]
"""As published, and where the assumptions hold."""


def rests(length: Length | None, seeds: Seeds) -> str:
    low, high = (seeds, seeds) if isinstance(seeds, int) else seeds
    counted = f"{low if low == high else f'{low} to {high}'} seed{'' if high == 1 else 's'}" if high else ""
    return ", ".join(part for part in (str(length) if length else "", counted) if part)


def all_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Of several conditions: one that fails is enough against it, one within noise leaves it open."""
    found = list(outcomes)
    for outcome in (Outcome.NO, Outcome.MISSING, Outcome.NOISE):
        if outcome in found:
            return outcome
    return Outcome.YES if found else Outcome.MISSING


@dataclass(frozen=True)
class Case:
    """One of several settings that a claim is about, and whether it holds there."""

    holds: bool
    length: Length
    name: str
    seeds: Sequence[int]
    number: float | None = None
    """by which it was judged"""


def over(cases: Sequence[Case], paper: int, share: float = 1.0, of: Any = None) -> Finding:
    """A claim of so many settings in the paper, of all or a share of them. What was run in full decides alone where it is enough:
    by the settings that hold, or by those that fail. Else all count, each by its longest trials. Words are about the cases, or
    about `of`."""
    full = [case for case in cases if case.length.full]
    fails = sum(not case.holds for case in full)
    enough = fails > (1 - share) * paper or len(full) - fails >= share * paper
    kept = full if enough else cases
    if not kept:
        return Finding()
    outcome = Outcome.of(sum(case.holds for case in kept) >= share * (paper if enough else len(kept)))
    seeds = [count for case in kept for count in case.seeds]
    return Finding(outcome, of or cases, (min(seeds), max(seeds)), together(kept, len(cases)))


def together(cases: Sequence[Case], known: int) -> Length:
    """The length of the shortest, with the names of those that were run in full where others that are known were not."""
    shortest = min((case.length for case in cases), key=lambda length: length.ran)
    full = [case.name for case in cases if case.length.full]
    if not full or len(full) == known:
        return shortest
    longer = "" if shortest.full else f", {shortest.paper:,}"
    return replace(shortest, besides=f"{longer} at {'; '.join(full)}")


def held(cases: Sequence[Case]) -> str:
    """In how many settings it holds, and in how many of those that were run in full where not all were."""
    full = [case.holds for case in cases if case.length.full]
    beside = f", in full {sum(full)} of {len(full)}" if 0 < len(full) < len(cases) else ""
    return f"{sum(case.holds for case in cases)} of {len(cases)} settings{beside}"


@dataclass(frozen=True)
class Gap:
    """By how much one thing exceeds another, seed by seed."""

    seeds: Sequence[float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.seeds)

    @property
    def error(self) -> float:
        """Of the mean."""
        return statistics.stdev(self.seeds) / math.sqrt(len(self.seeds))

    @property
    def above(self) -> Outcome:
        """Is the one above the other?"""
        if len(self.seeds) < SEEDS:
            return Outcome.MISSING
        return Outcome.NOISE if abs(self.mean) <= ERRORS * self.error else Outcome.of(self.mean > 0)

    def level(self, limit: float) -> Outcome:
        """Are the two level, by this limit? Not to be told where the noise is larger than that."""
        if len(self.seeds) < SEEDS:
            return Outcome.MISSING
        if abs(self.mean) <= limit:
            return Outcome.YES if self.error <= limit else Outcome.NOISE
        return Outcome.NOISE if abs(self.mean) <= ERRORS * self.error else Outcome.NO

    def __str__(self) -> str:
        error = f" ± {self.error:.1f}" if len(self.seeds) >= SEEDS else ""
        return f"{self.mean:+.1f}{error}".replace("-", "−") if self.seeds else "–"
