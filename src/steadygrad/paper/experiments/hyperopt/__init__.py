"""Hyperparameters by gradient: the paper's third experiment."""

from steadygrad.paper.experiments.experiment import Experiment
from steadygrad.paper.experiments.hyperopt.config import HyperoptConfig
from steadygrad.paper.experiments.hyperopt.experiment import headline, run
from steadygrad.paper.experiments.hyperopt.presets import PRESETS

HYPEROPT = Experiment(
    name="hyperopt",
    about="Learning rates, momenta and weight decays of a training by gradients through it (claims M1 to M4).",
    config=HyperoptConfig,
    presets=PRESETS,
    run=run,
    headline=headline,
    resumes=True,
)

__all__ = ["HYPEROPT", "HyperoptConfig"]
