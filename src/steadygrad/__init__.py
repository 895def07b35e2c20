"""Gradients at steady states: h* = F(h*), differentiated without unrolling, with a certificate."""

import importlib
from typing import TYPE_CHECKING, Any

from steadygrad import supported  # first of all: it says which torch is needed

try:
    from steadygrad.api import steady_state
except (ImportError, AttributeError) as error:
    raise supported.untested(error) from error
from steadygrad.diagnose import Diagnosis, diagnose
from steadygrad.equations import minimum, root
from steadygrad.failure import past_warnings
from steadygrad.fixedpoint import Anderson, Broyden, Picard, Reversible
from steadygrad.gradient import ARTBP, BPTT, TBPTT, Implicit, Phantom
from steadygrad.linear import CG, GMRES, LSQR, MINRES, Auto, BiCGSTAB, Dense, Neumann, NormalCG
from steadygrad.module import Equilibrium
from steadygrad.roots import Minimise, Newton, NewtonCG
from steadygrad.solution import AdjointSolution, Solution, Status, SteadyStateError, SteadyStateWarning
from steadygrad.sparse import SparseMatrix
from steadygrad.state.shards import sum_gradients

if TYPE_CHECKING:
    from steadygrad import hyper, models, penalty

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
    "SparseMatrix",
    "Status",
    "SteadyStateError",
    "SteadyStateWarning",
    "diagnose",
    "hyper",
    "minimum",
    "models",
    "past_warnings",
    "penalty",
    "root",
    "steady_state",
    "sum_gradients",
]


def __getattr__(name: str) -> Any:
    """Some parts are imported when they are first used: with them `import steadygrad` took 1.36 times `import torch`,
    without 1.13 (processor time).

    `sg.datasets` and `sg.experiments` need extras besides, which the core does not.
    """
    if name in ("hyper", "models", "penalty"):
        return importlib.import_module(f"steadygrad.{name}")
    if name in ("datasets", "experiments"):
        return importlib.import_module(f"steadygrad.paper.{name}")
    raise AttributeError(f"module 'steadygrad' has no attribute {name!r}")
