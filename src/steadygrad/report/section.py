"""What a page is made of: claims, figures, tables and sentences, one section an experiment."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import matplotlib.figure

VERDICTS = ("reproduced", "reproduced in one mode", "not reproduced", "no data")


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, its number and ours, and whether they agree."""

    id: str
    """as in the notes on the paper, "H1"; the figure or table named <section>-h1 (or -h1-...) is linked beside it"""
    text: str
    paper: str
    ours: str
    verdict: str
    """one of VERDICTS"""
    reason: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"the verdict on {self.id} is {self.verdict!r}; choose one of {', '.join(VERDICTS)}.")


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

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    name: str = ""
    """where a claim shall link to it, "hopfield-h2" """

    def __post_init__(self) -> None:
        if self.name:
            _check_name(self.name)
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"a row of {self.caption!r} has {len(row)} cells for {len(self.head)} columns: {row}.")


Block = Figure | Table | str


@dataclass(frozen=True)
class Section:
    """What the page says of one experiment. A block that is a string is a paragraph, or a heading if it starts with "## "."""

    name: str
    title: str
    about: str
    claims: tuple[Claim, ...]
    blocks: tuple[Block, ...]
    settings: Table
    command: str
    """what to type to make the records again"""


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"the name {name!r} becomes a file and an address; use small letters, digits, - and _ only.")
