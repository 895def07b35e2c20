"""One HTML file from records alone: it needs no other file, no network and no script."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from steadygrad import records as storage
from steadygrad.records import Record, Stranger
from steadygrad.report import facts, generic
from steadygrad.report.drawing import Drawn, draw
from steadygrad.report.section import Claim, Figure, Section, Table
from steadygrad.report.sections import SECTIONS, Builder
from steadygrad.report.text import is_number, plural, tied


class NoRecordsError(ValueError):
    """There is nothing to make a page of."""


@dataclass(frozen=True)
class Written:
    page: Path
    records: int
    strangers: list[Stranger]
    problems: list[str]
    """what could not be shown, and why; the page says it too. A caller should not exit with 0 where there are any."""


@dataclass(frozen=True)
class Item:
    """A block of a section with its number on the page: "Figure 3", "Table 1", or neither for a paragraph."""

    block: Figure | Table | str
    kind: str
    number: int
    drawn: Drawn | None = None
    problem: str = ""

    @property
    def label(self) -> str:
        return f"{self.kind.capitalize()} {self.number}"

    @property
    def anchor(self) -> str:
        return f"{self.kind}-{self.number}"

    @cached_property
    def right(self) -> list[bool]:
        """Of each column of a table: is it aligned to the right, as numbers are?"""
        if not isinstance(self.block, Table):
            return []
        columns = list(zip(*self.block.rows, strict=True)) or [()] * len(self.block.head)
        return [any(map(str.strip, column)) and all(map(is_number, column)) for column in columns]


@dataclass(frozen=True)
class Chapter:
    """A section with everything around it that comes from the records."""

    section: Section
    items: list[Item]
    settings: Item
    machines: list[facts.Machine]
    time: str
    failures: list[facts.Failure]
    trials: int
    problem: str = ""

    def shown(self, claim: Claim) -> Item | None:
        """The first figure or table that is named after the claim."""
        name = f"{self.section.name}-{claim.id.lower()}"
        for item in self.items:
            if not isinstance(item.block, str) and (item.block.name == name or item.block.name.startswith(f"{name}-")):
                return item
        return None


@dataclass
class Counter:
    """Numbers figures and tables in reading order, and draws the figures."""

    figure: int = 0
    table: int = 0
    drawn: dict[str, Drawn] = field(default_factory=dict[str, Drawn])
    problems: list[str] = field(default_factory=list[str])

    def item(self, block: Figure | Table | str) -> Item:
        if isinstance(block, str):
            return Item(block, "heading" if block.startswith("## ") else "paragraph", 0)
        if isinstance(block, Table):
            self.table += 1
            return Item(block, "table", self.table)
        self.figure += 1
        if block.name in self.drawn:
            raise ValueError(f"two figures are named {block.name!r}; their files would overwrite each other.")
        try:
            self.drawn[block.name] = draw(block)
        except Exception as error:  # a figure that cannot be drawn must not take the others with it
            problem = f"The figure {block.name} could not be drawn: {type(error).__name__}: {error}"
            self.problems.append(problem)
            return Item(block, "figure", self.figure, problem=problem)
        return Item(block, "figure", self.figure, self.drawn[block.name])


def write(folder: Path, out: Path, sections: Mapping[str, Builder] = SECTIONS) -> Written:
    """Read the records in the folder, write the page, and its figures as SVG and PDF into `figures` beside it.

    The same records give the same bytes. Every file is written beside its place and renamed, the page last. Without a single
    record nothing is written and NoRecordsError says what to do.
    """
    found = storage.read(folder)
    if not found.records:
        others = f", only {plural(len(found.strangers), 'file')} of other kinds" if found.strangers else ""
        raise NoRecordsError(
            f"there are no records in {folder}{others}; make some with `steadygrad run all --preset smoke --out {folder}`."
        )
    counter = Counter()
    grouped = groupby(sorted(found.records, key=lambda record: record.experiment), lambda record: record.experiment)
    chapters = [chapter(list(group), sections.get(name, generic.section), counter) for name, group in grouped]
    html = render(folder, chapters, found)
    for name, drawn in counter.drawn.items():
        put(out.parent / "figures" / f"{name}.svg", drawn.svg)
        put(out.parent / "figures" / f"{name}.pdf", drawn.pdf)
    put(out, html.encode("utf-8", "backslashreplace"))  # a lone surrogate, or a file name in another encoding
    return Written(out, len(found.records), found.strangers, counter.problems)


def chapter(records: Sequence[Record], builder: Builder, counter: Counter) -> Chapter:
    """One experiment's part of the page. Where its section cannot be built, the plain table stands in for it and says so."""
    problem = ""
    try:
        section = checked(builder(records))
    except Exception as error:  # records of another version, say: the other experiments are still worth a page
        name = records[0].experiment
        problem = f"The section of {name} could not be made from its records: {type(error).__name__}: {error}"
        counter.problems.append(problem)
        section = generic.section(records)
    return Chapter(
        section=section,
        items=[counter.item(block) for block in section.blocks],
        settings=counter.item(section.settings),
        machines=facts.machines(records),
        time=facts.time(records),
        failures=facts.failures(records),
        trials=len(records),
        problem=problem,
    )


def checked(section: Section) -> Section:
    if not isinstance(section, Section):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the builder returned {type(section).__name__}, no Section")
    return section


def render(folder: Path, chapters: Sequence[Chapter], found: storage.Collection) -> str:
    environment = Environment(
        loader=PackageLoader("steadygrad", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["tied"] = tied
    strangers = [(os.path.relpath(stranger.path, folder), stranger.reason) for stranger in found.strangers]
    return environment.get_template("page.html.jinja").render(
        chapters=chapters,
        summary=facts.summary(found.records, [chapter.section for chapter in chapters]),
        strangers=strangers,
        folder=folder.name,
    )


def put(path: Path, content: bytes) -> None:
    """Write beside the final name, then rename: a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
