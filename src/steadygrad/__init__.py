"""Gradients at steady states: h* = F(h*), differentiated without unrolling, with a certificate."""

from steadygrad.api import steady_state
from steadygrad.fixedpoint import Anderson, Broyden, Picard
from steadygrad.gradient import ARTBP, BPTT, TBPTT, Implicit, Phantom
from steadygrad.linear import GMRES, LSQR, Auto, BiCGSTAB, Dense, Neumann, NormalCG
from steadygrad.module import Equilibrium
from steadygrad.solution import AdjointSolution, Solution, Status, SteadyStateError, SteadyStateWarning

__version__ = "0.1.0"

__all__ = [
    "ARTBP",
    "BPTT",
    "GMRES",
    "LSQR",
    "TBPTT",
    "AdjointSolution",
    "Anderson",
    "Auto",
    "BiCGSTAB",
    "Broyden",
    "Dense",
    "Equilibrium",
    "Implicit",
    "Neumann",
    "NormalCG",
    "Phantom",
    "Picard",
    "Solution",
    "Status",
    "SteadyStateError",
    "SteadyStateWarning",
    "steady_state",
]
