"""Gradients at steady states: h* = F(h*), differentiated without unrolling, with a certificate."""

from steadygrad.api import steady_state
from steadygrad.fixedpoint import Picard
from steadygrad.gradient import ARTBP, BPTT, TBPTT, Implicit
from steadygrad.linear import Auto, Dense, Neumann, NormalCG
from steadygrad.module import Equilibrium
from steadygrad.solution import AdjointSolution, Solution, Status, SteadyStateError, SteadyStateWarning

__version__ = "0.1.0"

__all__ = [
    "ARTBP",
    "BPTT",
    "TBPTT",
    "AdjointSolution",
    "Auto",
    "Dense",
    "Equilibrium",
    "Implicit",
    "Neumann",
    "NormalCG",
    "Picard",
    "Solution",
    "Status",
    "SteadyStateError",
    "SteadyStateWarning",
    "steady_state",
]
