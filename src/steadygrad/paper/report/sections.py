"""Which experiment has which section, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steadygrad.paper.records import Record
from steadygrad.paper.report import citation, hopfield, hyperopt, theory
from steadygrad.paper.report.section import Section

Builder = Callable[[Sequence[Record]], Section]
# An experiment that is not here gets the section of generic.py.
SECTIONS: dict[str, Builder] = {
    "hopfield": hopfield.section,
    "citation": citation.section,
    "hyperopt": hyperopt.section,
    "theory": theory.section,
}
