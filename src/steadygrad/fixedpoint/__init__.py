"""Solvers of h = F(h)."""

from steadygrad.fixedpoint.anderson import Anderson
from steadygrad.fixedpoint.broyden import Broyden
from steadygrad.fixedpoint.picard import Picard
from steadygrad.fixedpoint.reversible import Reversible
from steadygrad.fixedpoint.solver import FixedPointSolver

__all__ = ["Anderson", "Broyden", "FixedPointSolver", "Picard", "Reversible"]
