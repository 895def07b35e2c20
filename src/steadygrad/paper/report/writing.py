"""Templates become a section: what they call to state a part of a claim, a table or a figure, and where these are kept.

Every claim has a Python file with its data, rule and figure, and a template of the same name with all that is said of it. A
template knows what its Python file defines, the sorted records as `found`, and the methods of `Writer`.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from types import ModuleType
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from steadygrad.paper.records import Record
from steadygrad.paper.report import text
from steadygrad.paper.report.fidelity import departed, departures, words
from steadygrad.paper.report.section import Exhibit, Figure, Part, Section, Table, placed
from steadygrad.paper.report.style import look
from steadygrad.paper.report.trial import WHOLE, drawn_of, median, methods_of
from steadygrad.paper.report.verdicts import Findings, held, kind, mark

Caller = Callable[..., str] | None
Claims = Sequence[ModuleType | str]
"""The files of a section's claims, and templates that need no code of their own."""
BANDS = "Lines: median over seeds, where there are several; bands: from the lowest to the highest seed."
FILTERS = ("short", "number", "percent", "rough", "span", "plural", "unbroken")
"""Functions of text.py that templates use."""


@cache
def templates() -> Environment:
    made = Environment(
        loader=PackageLoader("steadygrad.paper", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {name: getattr(text, name) for name in FILTERS}
    filters |= {"label": label, "mark": mark, "kind": kind, "held": held}
    filters |= {"each": each, "json": json.dumps, "median": median, "mean": statistics.fmean}
    made.filters.update(filters)
    return made


def label(method: str) -> str:
    return look(method).label


def each(items: Iterable[Any], function: Callable[[Any], Any]) -> list[Any]:
    return [function(item) for item in items]


def plain(words: str) -> str:
    """Words of a template in one line, without the marks of HTML; the spaces that do not break stay."""
    return re.sub(r"[ \n]+", " ", words.unescape() if isinstance(words, Markup) else words).strip()


def cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip(" ") for cell in line.split("|"))


def section_of(name: str, title: str, trials: ModuleType, claims: Claims, records: Sequence[Record]) -> Section:
    """The section of an experiment. `trials` sorts its records, says their settings, and is known to all templates."""
    found = trials.sort(records)
    return Writer(name, found, trials).write(title, claims, trials.settings(found))


class Writer:
    """Writes one section; keeps its parts and exhibits in the order in which the templates name them."""

    def __init__(self, name: str, found: Any, shared: ModuleType | None = None) -> None:
        """`shared`: what all templates of the section know besides."""
        self.name, self.found = name, found
        self.shared = vars(shared) if shared else {}
        self.parts: list[Part] = []
        self.exhibits: list[Exhibit] = []

    def write(self, title: str, claims: Claims, settings: Table) -> Section:
        """The section: the introduction, then the template of each claim."""
        body = "".join(map(self.rendered, ("intro", *claims)))
        command = f"steadygrad run {self.name} --preset standard --out results"
        return Section(self.name, title, tuple(self.parts), tuple(self.exhibits), settings, command, Markup(body))

    def rendered(self, claim: ModuleType | str) -> str:
        page, names = (claim, {}) if isinstance(claim, str) else (claim.__name__.rpartition(".")[2], vars(claim))
        fold = templates().get_template("fold.html.jinja").module.fold  # pyright: ignore[reportAttributeAccessIssue]
        tools = {"found": self.found, "part": self.part, "table": self.table, "figure": self.figure, "fold": fold, "BANDS": BANDS}
        tools |= {"WHOLE": WHOLE, "departed": departed, "departures": departures, "words": words}
        tools |= {"methods_of": methods_of, "drawn_of": drawn_of}
        return templates().get_template(f"{self.name}/{page}.html.jinja").render({**self.shared, **names, **tools})

    def part(self, name: str, findings: Findings, text: str, paper: str, why: str = "", caller: Caller = None) -> str:
        """{% call(s) part("H1a", judged, "It learns", "0.3", "Why.") %}what s, the trials judged, have{% endcall %}"""
        published, corrected = findings
        words = [plain(caller(finding.of)) if caller and finding.of is not None else "" for finding in findings]
        why = plain(why) + (f" Corrected: {words[1]}." if words[1] else "")
        verdicts = published.as_published(), corrected.where_assumptions_hold()
        self.parts.append(Part(name, plain(text), plain(paper), words[0], *verdicts, why.strip()))
        return ""

    def table(self, name: str, head: str, caption: str, note: str = "", caller: Callable[[], str] = str) -> str:
        """The table at this place, its rows in a call block, a line each with | between the cells; a line that begins with | goes
        on with the row above. None without rows."""
        body = re.sub(r"\n+ *\|", " |", Markup(caller()).unescape())
        rows = tuple(cells(line) for line in body.splitlines() if line.strip())
        made = Table(f"{self.name}-{name}", plain(caption), cells(head), rows, plain(note))
        return self.kept(made) if rows else ""

    def figure(self, name: str, draw: Callable[..., Any], *about: Any, records: int, alt: str, caller: Callable[[], str]) -> str:
        """The figure that draw(*about) makes at this place, its caption inside a call block; none without records."""
        if not records:
            return ""
        return self.kept(Figure(f"{self.name}-{name}", plain(caller()), plain(alt), partial(draw, *about), records))

    def kept(self, exhibit: Exhibit) -> str:
        self.exhibits.append(exhibit)
        return placed(exhibit)
