"""Associative memory in a continuous Hopfield network: the paper's first experiment, and a memory for one's own images."""

from steadygrad.experiments.experiment import Experiment
from steadygrad.experiments.hopfield.data import corrupt, digits
from steadygrad.experiments.hopfield.experiment import HopfieldConfig, headline, run
from steadygrad.experiments.hopfield.memory import AssociativeMemory, MemoryWarning, Stored
from steadygrad.experiments.hopfield.model import Hopfield
from steadygrad.experiments.hopfield.presets import PRESETS

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
