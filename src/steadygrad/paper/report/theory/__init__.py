"""What the page says of the theory: P1 to P4 and A1 as measured on small random maps, and the data sets."""

from __future__ import annotations

from functools import partial

from steadygrad.paper.report.theory import a1, data, p1, trials
from steadygrad.paper.report.writing import section_of

__all__ = ["section"]
section = partial(section_of, "theory", "Theory and data", trials, (p1, a1, data))
