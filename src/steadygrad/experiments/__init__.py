"""The paper's experiments, by name, in the order in which `steadygrad run all` runs them."""

from __future__ import annotations

from steadygrad.experiments.citation import CITATION
from steadygrad.experiments.experiment import Experiment
from steadygrad.experiments.hopfield import HOPFIELD
from steadygrad.experiments.hyperopt import HYPEROPT

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (HOPFIELD, CITATION, HYPEROPT)}
