"""What the page says of the hyperparameter experiment: claims M1 to M4, a file each, from its records alone."""

from __future__ import annotations

from functools import partial

from steadygrad.paper.report.hyperopt import hypergradients, m1, m2, m3, m4, trials
from steadygrad.paper.report.writing import section_of

__all__ = ["section"]
section = partial(section_of, "hyperopt", "Hyperparameters", trials, (m1, m2, m3, m4, hypergradients))
