"""Gradients at steady states: h* = F(h*), differentiated without unrolling, with a certificate."""

import importlib
from typing import Any

from steadygrad import hyper, penalty
from steadygrad.api import steady_state
from steadygrad.diagnose import Diagnosis, diagnose
from steadygrad.fixedpoint import Anderson, Broyden, Picard, Reversible
from steadygrad.forms import minimum, root
from steadygrad.gradient import ARTBP, BPTT, TBPTT, Implicit, Phantom
from steadygrad.linear import CG, GMRES, LSQR, MINRES, Auto, BiCGSTAB, Dense, Neumann, NormalCG
from steadygrad.module import Equilibrium
from steadygrad.roots import Minimise, Newton, NewtonCG
from steadygrad.solution import AdjointSolution, Solution, Status, SteadyStateError, SteadyStateWarning

__version__ = "0.1.0"

__all__ = [
    "ARTBP",
    "BPTT",
    "CG",
    "GMRES",
    "LSQR",
    "MINRES",
    "TBPTT",
    "AdjointSolution",
    "Anderson",
    "Auto",
    "BiCGSTAB",
    "Broyden",
    "Dense",
    "Diagnosis",
    "Equilibrium",
    "Implicit",
    "Minimise",
    "Neumann",
    "Newton",
    "NewtonCG",
    "NormalCG",
    "Phantom",
    "Picard",
    "Reversible",
    "Solution",
    "Status",
    "SteadyStateError",
    "SteadyStateWarning",
    "diagnose",
    "hyper",
    "minimum",
    "penalty",
    "root",
    "steady_state",
]


def __getattr__(name: str) -> Any:
    """`sg.datasets` and `sg.experiments` are imported when they are first used: the core needs neither them nor their extras."""
    if name in ("datasets", "experiments"):
        return importlib.import_module(f"steadygrad.{name}")
    raise AttributeError(f"module 'steadygrad' has no attribute {name!r}")
