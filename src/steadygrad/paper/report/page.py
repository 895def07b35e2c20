"""One HTML file from records alone: it needs no other file, no network and no script."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from steadygrad.files import write_atomically
from steadygrad.paper import records as storage
from steadygrad.paper.records import Record, Stranger
from steadygrad.paper.report import facts, generic
from steadygrad.paper.report.drawing import Drawn, draw
from steadygrad.paper.report.section import Exhibit, Figure, Section, Table
from steadygrad.paper.report.sections import SECTIONS, Builder
from steadygrad.paper.report.text import is_number, percent, plural, share, short, tied
from steadygrad.paper.report.verdicts import (
    AT_LENGTH,
    CONTRADICTED,
    CORRECTED,
    FAILS,
    HOLDS,
    PREMISE,
    PUBLISHED,
    READING,
    SHORTER,
)

FIGURES = "figures"
MARKS = {AT_LENGTH: "✓", SHORTER: "✓", HOLDS: "✓", CONTRADICTED: "✗", FAILS: "✗", PREMISE: "✗", READING: "◐"}
"""Before the words of a verdict, so that it does not hang on its colour; all others have a –."""
KINDS = {"✓": "good", "✗": "bad", "◐": "half", "–": "open"}


Drawing = Callable[[Figure], Drawn]


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
    """An exhibit with its number on the page, "Figure 3"."""

    exhibit: Exhibit
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
        if not isinstance(self.exhibit, Table):
            return []
        columns = list(zip(*self.exhibit.rows, strict=True)) or [()] * len(self.exhibit.head)
        return [any(map(str.strip, column)) and all(map(is_number, column)) for column in columns]


@dataclass
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
    body: Markup = field(default_factory=Markup)


@dataclass
class Counter:
    """Numbers figures and tables in reading order, and draws the figures."""

    drawing: Drawing
    figure: int = 0
    table: int = 0
    drawn: dict[str, Drawn] = field(default_factory=dict[str, Drawn])
    problems: list[str] = field(default_factory=list[str])

    def item(self, exhibit: Exhibit) -> Item:
        if isinstance(exhibit, Table):
            self.table += 1
            return Item(exhibit, "table", self.table)
        self.figure += 1
        if exhibit.name in self.drawn:
            raise ValueError(f"two figures are named {exhibit.name!r}; their files would overwrite each other.")
        try:
            self.drawn[exhibit.name] = self.drawing(exhibit)
        except Exception as error:  # a figure that cannot be drawn must not take the others with it
            problem = f"The figure {exhibit.name} could not be drawn: {type(error).__name__}: {error}"
            self.problems.append(problem)
            return Item(exhibit, "figure", self.figure, problem=problem)
        return Item(exhibit, "figure", self.figure, self.drawn[exhibit.name])


def write(folder: Path, out: Path, sections: Mapping[str, Builder] = SECTIONS, *, files: bool = True) -> Written:
    """Read the records in the folder, write the page, and its figures as SVG and PDF into `figures` beside it.

    The same records give the same bytes. Every file is written beside its place and renamed, the page last. Without a single
    record nothing is written and NoRecordsError says what to do. Without `files` there is the page alone.
    """
    html, counter, found = make(folder, sections, files=files)
    drawn_files = counter.drawn if files else {}
    place = out.parent / FIGURES
    for path in (place if drawn_files else out.parent, out.parent):
        path.mkdir(parents=True, exist_ok=True)
    for name, drawn in drawn_files.items():
        write_atomically(place / f"{name}.svg", drawn.svg)
        write_atomically(place / f"{name}.pdf", drawn.pdf)
    write_atomically(out, html)
    return Written(out, len(found.records), found.strangers, counter.problems)


def make(
    folder: Path, sections: Mapping[str, Builder] = SECTIONS, *, files: bool = True, drawing: Drawing | None = None
) -> tuple[bytes, Counter, storage.Collection]:
    """The page, its figures, and the records it was made of. `drawing` may stand in for `draw` where pictures do not matter."""
    found = storage.read(folder)
    if not found.records:
        others = f", only {plural(len(found.strangers), 'file')} of other kinds" if found.strangers else ""
        raise NoRecordsError(
            f"there are no records in {folder}{others}; make some with `steadygrad run all --preset smoke --out {folder}`."
        )
    counter = Counter(draw if drawing is None else drawing)
    order = {name: place for place, name in enumerate(sections)}
    ranked = sorted(found.records, key=lambda record: (order.get(record.experiment, len(order)), record.experiment))
    grouped = groupby(ranked, lambda record: record.experiment)
    environment = templates()
    cast("dict[str, Any]", environment.globals)["files"] = files
    chapters = [chapter(list(group), sections.get(name, generic.section), counter, environment) for name, group in grouped]
    html = render(folder, chapters, found, environment)
    return html.encode("utf-8", "backslashreplace"), counter, found  # a lone surrogate, or a file name in another encoding


def chapter(records: Sequence[Record], builder: Builder, counter: Counter, environment: Environment) -> Chapter:
    """One experiment's part of the page. Where its section cannot be built, the plain table stands in for it and says so."""
    section, problem = built(records, builder, counter)
    made = Chapter(
        section=section,
        items=[counter.item(exhibit) for exhibit in section.exhibits],
        settings=counter.item(section.settings),
        machines=facts.machines(records),
        time=facts.time(records),
        failures=facts.failures(records),
        trials=len(records),
        problem=problem,
    )
    made.body = Shown(made, environment).body()
    return made


def built(records: Sequence[Record], builder: Builder, counter: Counter) -> tuple[Section, str]:
    try:
        section = builder(records)
        if not isinstance(section, Section):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the builder returned {type(section).__name__}, no Section")
        return section, ""
    except Exception as error:  # records of another version, say: the other experiments are still worth a page
        problem = f"The section of {records[0].experiment} could not be made from its records: {type(error).__name__}: {error}"
        counter.problems.append(problem)
        return generic.section(records), problem


class Shown:
    """The body of a chapter: its template, which calls `show`, or all exhibits one after the other."""

    def __init__(self, chapter: Chapter, environment: Environment) -> None:
        self.chapter, self.environment = chapter, environment
        self.used: set[str] = set()

    def body(self) -> Markup:
        section = self.chapter.section
        if section.body:
            return Markup(re.sub("\0(.+?)\0", lambda mark: self.show(mark[1].removeprefix(f"{section.name}-")), section.body))
        if not section.template:
            return self.show("*")
        template = self.environment.get_template(section.template)
        text = template.render(show=self.show, section=section, **section.numbers)
        left = {item.exhibit.name for item in self.chapter.items} - self.used
        if left:
            raise ValueError(f"{section.template} shows no {', '.join(sorted(left))}.")
        return Markup(text)

    def show(self, *names: str) -> Markup:
        """The exhibits of these names, without the section's own, as far as there are any; "h3*" are all that begin so."""
        prefix, template = f"{self.chapter.section.name}-", self.environment.get_template("exhibit.html.jinja")
        made: list[str] = []
        for name in names:
            for item in self.chapter.items:
                short_name = item.exhibit.name.removeprefix(prefix)
                if short_name == name or (name.endswith("*") and short_name.startswith(name[:-1])):
                    self.used.add(item.exhibit.name)
                    made.append(template.render(item=item, is_figure=isinstance(item.exhibit, Figure)))
        return Markup("").join(Markup(text) for text in made)


def templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("steadygrad.paper", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {"tied": tied, "short": short, "percent": percent, "share": share, "mark": mark}
    environment.filters.update(filters)
    return environment


def mark(verdict: str) -> str:
    return MARKS.get(verdict, "–")


def render(folder: Path, chapters: Sequence[Chapter], found: storage.Collection, environment: Environment) -> str:
    strangers = [(os.path.relpath(stranger.path, folder), stranger.reason) for stranger in found.strangers]
    return environment.get_template("page.html.jinja").render(
        chapters=chapters,
        parted=[chapter for chapter in chapters if chapter.section.parts],
        summary=facts.summary(found.records, [chapter.section for chapter in chapters]),
        strangers=strangers,
        folder=folder.name,
        kinds=KINDS,
        verdicts=(PUBLISHED, CORRECTED),
    )
