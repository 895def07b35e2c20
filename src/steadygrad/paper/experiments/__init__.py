"""The paper's experiments, by name, in the order in which `steadygrad run all` runs them."""

from __future__ import annotations

try:
    from steadygrad.paper.experiments.citation import CITATION
    from steadygrad.paper.experiments.experiment import Experiment
    from steadygrad.paper.experiments.hopfield import HOPFIELD
    from steadygrad.paper.experiments.hyperopt import HYPEROPT
    from steadygrad.paper.experiments.theory import THEORY
except ModuleNotFoundError as error:
    if (error.name or "").startswith("steadygrad"):
        raise
    raise ModuleNotFoundError(
        f"steadygrad.paper.experiments needs {error.name}, which is not installed: pip install 'steadygrad[experiments]'",
        name=error.name,
    ) from error

EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in (THEORY, HOPFIELD, CITATION, HYPEROPT)}
