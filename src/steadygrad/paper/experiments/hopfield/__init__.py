"""Associative memory in a continuous Hopfield network: the paper's first experiment."""

from steadygrad.models.hopfield import AssociativeMemory, Hopfield, MemoryWarning, Stored
from steadygrad.paper.experiments.experiment import Experiment
from steadygrad.paper.experiments.hopfield.data import corrupt, digits
from steadygrad.paper.experiments.hopfield.experiment import HopfieldConfig, headline, run
from steadygrad.paper.experiments.hopfield.presets import PRESETS

HOPFIELD = Experiment(
    name="hopfield",
    about="Associative memory: ten digits in a continuous Hopfield network (claims H1 to H4).",
    config=HopfieldConfig,
    presets=PRESETS,
    run=run,
    headline=headline,
    resumes=True,
)

__all__ = ["HOPFIELD", "AssociativeMemory", "Hopfield", "HopfieldConfig", "MemoryWarning", "Stored", "corrupt", "digits"]
