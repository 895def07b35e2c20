"""Which experiment has which section."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steadygrad.records import Record
from steadygrad.report import citation, hopfield, hyperopt
from steadygrad.report.section import Section

Builder = Callable[[Sequence[Record]], Section]
# An experiment that is not here gets the section of generic.py.
SECTIONS: dict[str, Builder] = {"hopfield": hopfield.section, "citation": citation.section, "hyperopt": hyperopt.section}
