"""One HTML file from records alone: it needs no other file, no network and no script."""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from steadygrad.files import write_atomically
from steadygrad.paper import records as storage
from steadygrad.paper.records import Record, Stranger
from steadygrad.paper.report import facts, generic, style
from steadygrad.paper.report.citation import g1, g2, g3
from steadygrad.paper.report.citation import trials as citation
from steadygrad.paper.report.hopfield import h1, h2, h3, h4
from steadygrad.paper.report.hopfield import trials as hopfield
from steadygrad.paper.report.hyperopt import hypergradients, m1, m2, m3, m4
from steadygrad.paper.report.hyperopt import trials as hyperopt
from steadygrad.paper.report.section import Exhibit, Figure, Section, Table, placed
from steadygrad.paper.report.text import is_number, plural, tied
from steadygrad.paper.report.theory import a1, p1
from steadygrad.paper.report.theory import trials as theory
from steadygrad.paper.report.verdicts import CORRECTED, PUBLISHED
from steadygrad.paper.report.writing import section_of, templates

FIGURES = "figures"
Builder = Callable[[Sequence[Record]], Section]
SECTIONS: dict[str, Builder] = {
    "hopfield": partial(section_of, "hopfield", "Associative memory", hopfield, (h1, h2, h3, h4, "fidelity")),
    "citation": partial(section_of, "citation", "Citation graphs", citation, (g1, g2, g3, "cost", "fidelity")),
    "hyperopt": partial(section_of, "hyperopt", "Hyperparameters", hyperopt, (m1, m2, m3, m4, hypergradients)),
    "theory": partial(section_of, "theory", "Theory and data", theory, (p1, a1, "data")),
}
"""In the order of the page; an experiment that is not here gets the section of generic.py."""


class NoRecordsError(ValueError):
    """There is nothing to make a page of."""


@dataclass(frozen=True)
class Drawn:
    svg: bytes
    pdf: bytes
    width: int
    height: int

    @property
    def uri(self) -> str:
        """The SVG as an address. An image of its own, so that ids of clip paths and glyphs cannot clash between figures."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode()}"


def draw(figure: Figure) -> Drawn:
    """Draw in our style, without dates in the files; width and height are CSS pixels."""
    with style.use():
        picture = figure.draw()
        svg, pdf = io.BytesIO(), io.BytesIO()
        picture.savefig(svg, format="svg", metadata={"Date": None})
        picture.savefig(pdf, format="pdf", metadata={"CreationDate": None})
        width, height = (round(96 * float(inches)) for inches in picture.get_size_inches())
    return Drawn(rounded(svg.getvalue()), pdf.getvalue(), width, height)


def rounded(svg: bytes) -> bytes:
    """Coordinates of paths and markers to a hundredth of a point, which nobody sees. Not those of scales: letters are scaled."""

    def shorter(places: re.Match[bytes]) -> bytes:
        return re.sub(rb"\d+\.\d{3,}", lambda found: b"%.2f" % float(found[0]), places[0])

    return re.sub(rb' (?:d|x|y)="[^"]*"', shorter, svg)


@dataclass(frozen=True)
class Written:
    page: Path
    records: int
    strangers: list[Stranger]
    problems: list[str]
    """what could not be shown, and why; the page says it too. A caller should not exit with 0 where there are any."""


Drawing = Callable[[Figure], Drawn]


@dataclass
class Pages:
    """Makes the chapters one after the other: numbers figures and tables in reading order, draws figures, keeps problems."""

    drawing: Drawing
    files: bool
    """whether the figures are files beside the page too"""
    counts: dict[str, int] = field(default_factory=lambda: {"figure": 0, "table": 0})
    drawn: dict[str, Drawn] = field(default_factory=dict[str, Drawn])
    problems: list[str] = field(default_factory=list[str])

    def chapter(self, records: Sequence[Record], builder: Builder) -> dict[str, Any]:
        """A section with all that comes from its records. Where it cannot be built, the plain table stands in and says so."""
        before = len(self.problems)
        try:
            section = builder(records)
        except Exception as error:  # records of another version, say: the other experiments are still worth a page
            name = records[0].experiment
            self.problems.append(f"The section of {name} could not be made from its records: {type(error).__name__}: {error}")
            section = generic.section(records)
        problem = "".join(self.problems[before:])
        known = {exhibit.name: exhibit for exhibit in section.exhibits}
        body = section.body or "".join(map(placed, section.exhibits))
        body = re.sub("\0(.+?)\0", lambda place: self.shown(known[place[1]]), body)
        failures = [record for record in records if record.error is not None]
        rest = {"machines": facts.machines(records), "time": facts.time(records), "failures": failures, "trials": len(records)}
        return {"section": section, "body": Markup(body), "settings": self.shown(section.settings), "problem": problem, **rest}

    def shown(self, exhibit: Exhibit) -> Markup:
        """An exhibit with its number: "Figure 3"."""
        kind = type(exhibit).__name__.lower()
        self.counts[kind] += 1
        numbers = {"exhibit": exhibit, "kind": kind, "number": self.counts[kind], "files": self.files}
        if isinstance(exhibit, Table):
            return rendered("exhibit", **numbers, right=right(exhibit))
        if exhibit.name in self.drawn:
            raise ValueError(f"two figures are named {exhibit.name!r}; their files would overwrite each other.")
        try:
            self.drawn[exhibit.name] = self.drawing(exhibit)
        except Exception as error:  # a figure that cannot be drawn must not take the others with it
            self.problems.append(f"The figure {exhibit.name} could not be drawn: {type(error).__name__}: {error}")
            return rendered("exhibit", **numbers, drawn=None, problem=self.problems[-1])
        return rendered("exhibit", **numbers, drawn=self.drawn[exhibit.name])


def rendered(template: str, **names: Any) -> Markup:
    return Markup(templates().get_template(f"{template}.html.jinja").render(names))


def right(table: Table) -> list[bool]:
    """Of each column of a table: is it aligned to the right, as numbers are?"""
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.head)
    return [any(map(str.strip, column)) and all(map(is_number, column)) for column in columns]


def write(folder: Path, out: Path, sections: Mapping[str, Builder] = SECTIONS, *, files: bool = True) -> Written:
    """Read the records in the folder, write the page, and its figures as SVG and PDF into `figures` beside it.

    The same records give the same bytes. Every file is written beside its place and renamed, the page last. Without a single
    record nothing is written and NoRecordsError says what to do. Without `files` there is the page alone.
    """
    html, pages, found = make(folder, sections, files=files)
    place = out.parent / FIGURES if files and pages.drawn else out.parent
    place.mkdir(parents=True, exist_ok=True)
    for name, drawn in pages.drawn.items() if files else ():
        write_atomically(place / f"{name}.svg", drawn.svg)
        write_atomically(place / f"{name}.pdf", drawn.pdf)
    write_atomically(out, html)
    return Written(out, len(found.records), found.strangers, pages.problems)


def make(
    folder: Path, sections: Mapping[str, Builder] = SECTIONS, *, files: bool = True, drawing: Drawing | None = None
) -> tuple[bytes, Pages, storage.Collection]:
    """The page, its figures, and the records it was made of. `drawing` may stand in for `draw` where pictures do not matter."""
    found = storage.read(folder)
    if not found.records:
        others = f", only {plural(len(found.strangers), 'file')} of other kinds" if found.strangers else ""
        raise NoRecordsError(
            f"there are no records in {folder}{others}; make some with `steadygrad run all --preset smoke --out {folder}`."
        )
    pages = Pages(drawing or draw, files)
    order = {name: place for place, name in enumerate(sections)}
    ranked = sorted(found.records, key=lambda record: (order.get(record.experiment, len(order)), record.experiment))
    grouped = groupby(ranked, lambda record: record.experiment)
    chapters = [pages.chapter(list(group), sections.get(name, generic.section)) for name, group in grouped]
    html = rendered(
        "page",
        chapters=chapters,
        records=found.records,
        strangers=[(os.path.relpath(stranger.path, folder), stranger.reason) for stranger in found.strangers],
        folder=folder.name,
        tally=facts.tally,
        PUBLISHED=PUBLISHED,
        CORRECTED=CORRECTED,
    )
    return tied(html).encode("utf-8", "backslashreplace"), pages, found  # a lone surrogate, or a file name in another encoding
