"""The paper's experiments, by name, in the order in which `steadygrad run all` runs them."""

from __future__ import annotations

from importlib.util import find_spec

from steadygrad.paper.experiments.citation import CITATION
from steadygrad.paper.experiments.experiment import Experiment
from steadygrad.paper.experiments.hopfield import HOPFIELD
from steadygrad.paper.experiments.hyperopt import HYPEROPT
from steadygrad.paper.experiments.theory import THEORY

# It is imported where it is used, since that takes longer than torch; that it lacks is said at once.
if find_spec("sklearn") is None:
    raise ModuleNotFoundError(
        "steadygrad.paper.experiments needs sklearn, which is not installed: pip install 'steadygrad[experiments]'",
        name="sklearn",
    )

EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in (THEORY, HOPFIELD, CITATION, HYPEROPT)}
