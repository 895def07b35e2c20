"""The paper's propositions and penalties, measured on small random maps."""

from steadygrad.paper.experiments.experiment import Experiment
from steadygrad.paper.experiments.theory.experiment import PRESETS, TheoryConfig, headline, run

THEORY = Experiment(
    name="theory",
    about="Propositions P1 to P4 and the penalties of the appendix (A1) on small random maps, in float64.",
    config=TheoryConfig,
    presets=PRESETS,
    run=run,
    headline=headline,
)

__all__ = ["THEORY", "TheoryConfig"]
