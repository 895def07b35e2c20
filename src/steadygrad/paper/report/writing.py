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

from steadygrad.paper.report import text
from steadygrad.paper.report.fidelity import beside, departures, ranged, words
from steadygrad.paper.report.section import Exhibit, Figure, Findings, Part, Section, Table, placed
from steadygrad.paper.report.style import look
from steadygrad.paper.report.trial import WHOLE, middle
from steadygrad.paper.report.verdicts import NO_DATA, NOT_APPLICABLE, Verdict, as_published, kind, mark, where_assumptions_hold

Caller = Callable[..., str] | None
BANDS = "Lines: median over seeds; bands: from the lowest to the highest seed."
FILTERS = ("short", "number", "percent", "rough", "share", "times", "span", "strokes", "plural", "unbroken")
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
    filters: dict[str, Any] = {**{name: getattr(text, name) for name in FILTERS}, "label": label, "mark": mark, "kind": kind}
    filters |= {
        "each": each,
        "json": json.dumps,
        "median": median_of,
        "mean": statistics.fmean,
    }
    made.filters.update(filters)
    return made


def label(method: str) -> str:
    return look(method).label


def each(items: Iterable[Any], function: Callable[[Any], Any]) -> list[Any]:
    return [function(item) for item in items]


def median_of(values: Iterable[float | None]) -> float | None:
    return middle(values, lambda value: value)


def plain(words: str) -> str:
    """Words of a template in one line, without the marks of HTML; the spaces that do not break stay."""
    return re.sub(r"[ \n]+", " ", words.unescape() if isinstance(words, Markup) else words).strip()


def cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip(" ") for cell in line.split("|"))


class Writer:
    """Writes one section; keeps its parts and exhibits in the order in which the templates name them."""

    def __init__(self, name: str, found: Any) -> None:
        self.name, self.found = name, found
        self.parts: list[Part] = []
        self.exhibits: list[Exhibit] = []

    def write(self, title: str, claims: Sequence[ModuleType], settings: Table) -> Section:
        """The section: the introduction, then the template of each claim."""
        pages = {"intro": {}, **{claim.__name__.rpartition(".")[2]: vars(claim) for claim in claims}}
        body = "".join(self.rendered(page, names) for page, names in pages.items())
        command = f"steadygrad run {self.name} --preset standard --out results"
        return Section(self.name, title, tuple(self.parts), tuple(self.exhibits), settings, command, Markup(body))

    def rendered(self, page: str, names: dict[str, Any]) -> str:
        fold = templates().get_template("fold.html.jinja").module.fold  # pyright: ignore[reportAttributeAccessIssue]
        tools = {"found": self.found, "part": self.part, "table": self.table, "figure": self.figure, "fold": fold, "BANDS": BANDS}
        tools |= {"WHOLE": WHOLE, "beside": beside, "departures": departures, "ranged": ranged, "words": words}
        return templates().get_template(f"{self.name}/{page}.html.jinja").render({**names, **tools})

    def part(self, name: str, findings: Findings, text: str, paper: str, why: str = "", caller: Caller = None) -> str:
        """{% call(s) part("H1a", judged, "It learns", "0.3", "Why.") %}what s, the trials judged, have{% endcall %}"""
        published, corrected = findings
        words = [plain(caller(finding.of)) if caller and finding else "" for finding in findings]
        why = plain(why) + (f" Corrected: {words[1]}." if words[1] else "")
        verdicts = Verdict(NO_DATA), Verdict(NO_DATA)
        if published is not None:
            rests: dict[str, Any] = {"length": published.length, "seeds": published.seeds}
            ours = as_published(*published.readings, **rests, premise=published.premise, longer=published.longer)
            verdicts = ours, verdicts[1]
        if corrected is not None:
            fixed = where_assumptions_hold(corrected.readings[0], corrected.seeds)
            verdicts = verdicts[0], fixed if corrected.applicable else Verdict(NOT_APPLICABLE)
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
