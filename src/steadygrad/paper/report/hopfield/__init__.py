"""What the page says of the Hopfield experiment: claims H1 to H4, a file each, from its records alone."""

from __future__ import annotations

from functools import partial

from steadygrad.paper.report.hopfield import h1, h2, h3, h4, trials
from steadygrad.paper.report.writing import section_of

__all__ = ["section"]
section = partial(section_of, "hopfield", "Associative memory", trials, (h1, h2, h3, h4, "fidelity"))
