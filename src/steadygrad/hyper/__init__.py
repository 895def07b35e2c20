"""Hyperparameters by gradient: differentiate the end of training, and tune by it."""

from steadygrad.calls import Ray
from steadygrad.hyper.adam import Adam
from steadygrad.hyper.constraints import Free, Log, Logit, Softplus
from steadygrad.hyper.forward import Forward
from steadygrad.hyper.gradient import hypergradient
from steadygrad.hyper.history import Candidate, MetaStep, Tuning
from steadygrad.hyper.many import Tuned, Tunings, tune_many
from steadygrad.hyper.optimiser import SGD
from steadygrad.hyper.problem import NonfiniteError
from steadygrad.hyper.resolve import Average, Fresh, Full, Last
from steadygrad.hyper.result import Hypergradient
from steadygrad.hyper.tuning import tune

__all__ = [
    "SGD",
    "Adam",
    "Average",
    "Candidate",
    "Forward",
    "Free",
    "Fresh",
    "Full",
    "Hypergradient",
    "Last",
    "Log",
    "Logit",
    "MetaStep",
    "NonfiniteError",
    "Ray",
    "Softplus",
    "Tuned",
    "Tuning",
    "Tunings",
    "hypergradient",
    "tune",
    "tune_many",
]
