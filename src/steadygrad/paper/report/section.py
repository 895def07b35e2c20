"""What a page is made of: parts of claims with their verdicts, figures, tables and prose, one section an experiment."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from steadygrad.paper.report.verdicts import CORRECTED, PUBLISHED, Verdict

if TYPE_CHECKING:
    import matplotlib.figure


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
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", self.name):
            raise ValueError(f"the name {self.name!r} becomes a file; use small letters, digits, - and _ only.")


@dataclass(frozen=True)
class Table:
    """A table of strings. Columns whose cells are all numbers are aligned to the right."""

    name: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"a row of {self.caption!r} has {len(row)} cells for {len(self.head)} columns: {row}.")


Exhibit = Figure | Table


@dataclass(frozen=True)
class Section:
    """What the page says of one experiment."""

    name: str
    title: str
    parts: tuple[Part, ...]
    exhibits: tuple[Exhibit, ...]
    settings: Table
    command: str
    """what to type to make the records again"""
    body: str = ""
    """HTML with the places of the exhibits; without it they follow each other"""


def placed(exhibit: Exhibit) -> Markup:
    """Where an exhibit belongs in the prose of a section; the page puts it there, with its number."""
    return Markup(f"\0{exhibit.name}\0")
