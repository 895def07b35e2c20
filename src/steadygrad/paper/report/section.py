"""What a page is made of: parts of claims with their verdicts, figures, tables and prose, one section an experiment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from steadygrad.paper.report.verdicts import (
    CORRECTED,
    NO_DATA,
    PUBLISHED,
    Length,
    Outcome,
    Seeds,
    Verdict,
    as_published,
    where_assumptions_hold,
)

if TYPE_CHECKING:
    import matplotlib.figure

NOTHING = Verdict(NO_DATA)


@dataclass(frozen=True)
class Part:
    """A part of a claim of the paper: its number and ours, and the two verdicts on it."""

    id: str
    """the claim and the letter of the part, "H1a"; the fold <section>-h1 of the page shows what it rests on"""
    text: str
    paper: str
    ours: str
    published: Verdict
    corrected: Verdict
    why: str
    """one short sentence"""

    def __post_init__(self) -> None:
        for verdict, names in ((self.published, PUBLISHED), (self.corrected, CORRECTED)):
            if verdict.name not in names:
                raise ValueError(f"the verdict on {self.id} is {verdict.name!r}; choose one of {', '.join(names)}.")

    @property
    def claim(self) -> str:
        return self.id.rstrip("abcdefgh")


@dataclass(frozen=True)
class Finding:
    """What the trials of one setting say of a part of a claim, in words too, and on what that rests: see `as_published`."""

    outcome: Outcome | tuple[Outcome, ...]
    """several where the paper can be read in several ways"""
    words: str = ""
    seeds: Seeds = 0
    length: Length | None = None
    premise: bool = True
    longer: Outcome = Outcome.MISSING
    applicable: bool = True
    of: Any = None
    """what the words of the template speak of, mostly a group of trials"""

    @property
    def readings(self) -> tuple[Outcome, ...]:
        return self.outcome if isinstance(self.outcome, tuple) else (self.outcome,)


Findings = tuple[Finding | None, Finding | None]
"""As published, and where the assumptions hold; None where nobody measured it."""


def judged(name: str, text: str, paper: str, published: Finding | None, corrected: Finding | None, why: str = "") -> Part:
    """The part with its verdicts; the corrected setting's numbers follow the reason."""
    verdict = other = NOTHING
    if published is not None:
        rests: dict[str, Any] = {"length": published.length, "seeds": published.seeds}
        verdict = as_published(*published.readings, **rests, premise=published.premise, longer=published.longer)
    if corrected is not None:
        other = where_assumptions_hold(corrected.readings[0], corrected.seeds)
        why += f" Corrected: {corrected.words}." if corrected.words else ""
    return Part(name, text, paper, published.words if published else "", verdict, other, why.strip())


@dataclass(frozen=True)
class Figure:
    """A figure that is drawn when the page is made."""

    name: str
    """the stem of its file, "hopfield-h1"; one of its own on the page"""
    caption: str
    alt: str
    """what there is to see, for those who cannot"""
    draw: Callable[[], matplotlib.figure.Figure]
    records: int
    """how many records it rests on"""

    def __post_init__(self) -> None:
        _check_name(self.name)


@dataclass(frozen=True)
class Table:
    """A table of strings. Columns whose cells are all numbers are aligned to the right."""

    name: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        _check_name(self.name)
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"a row of {self.caption!r} has {len(row)} cells for {len(self.head)} columns: {row}.")


Exhibit = Figure | Table


@dataclass(frozen=True)
class Section:
    """What the page says of one experiment.

    `template` is a file of prose that shows the exhibits by `show("h1")`, the name without the section's, or `show("g1-*")` for
    all that begin so, and has `numbers` to speak of; without a template the exhibits follow each other.
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    exhibits: tuple[Exhibit, ...]
    settings: Table
    command: str
    """what to type to make the records again"""
    body: str = ""
    """HTML, with the places of its exhibits"""
    template: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])


def present(*exhibits: Exhibit | None) -> tuple[Exhibit, ...]:
    """Those that the records can make: a table without rows is none."""
    return tuple(e for e in exhibits if e is not None and not (isinstance(e, Table) and not e.rows))


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"the name {name!r} becomes a file and an address; use small letters, digits, - and _ only.")


def placed(exhibit: Exhibit) -> Markup:
    """Where an exhibit belongs in the prose of a section; the page puts it there, with its number."""
    return Markup(f"\0{exhibit.name}\0")
