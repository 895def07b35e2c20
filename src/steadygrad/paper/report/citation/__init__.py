"""What the page says of the citation experiment: claims G1 to G3, a file each, from its records alone."""

from __future__ import annotations

from functools import partial

from steadygrad.paper.report.citation import cost, g1, g2, g3, trials
from steadygrad.paper.report.writing import section_of

__all__ = ["section"]
section = partial(section_of, "citation", "Citation graphs", trials, (g1, g2, g3, cost, "fidelity"))
