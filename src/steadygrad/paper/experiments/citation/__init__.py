"""Documents of a citation graph classified from few labels: the paper's second experiment, and a network for one's own graph."""

from steadygrad.models.graph import neighbours, normalised
from steadygrad.paper.experiments.citation.data import Split, of_data, own, planted, split
from steadygrad.paper.experiments.citation.experiment import CitationConfig, Trained, headline, run, train
from steadygrad.paper.experiments.citation.model import Diffusion, PublishedGRU
from steadygrad.paper.experiments.citation.presets import PRESETS
from steadygrad.paper.experiments.experiment import Experiment

CITATION = Experiment(
    name="citation",
    about="Documents of a citation graph classified from 1 % of labels (claims G1 to G3).",
    config=CitationConfig,
    presets=PRESETS,
    run=run,
    headline=headline,
    resumes=True,
)

__all__ = [
    "CITATION",
    "CitationConfig",
    "Diffusion",
    "PublishedGRU",
    "Split",
    "Trained",
    "neighbours",
    "normalised",
    "of_data",
    "own",
    "planted",
    "split",
    "train",
]
