"""Solvers of h = F(h)."""

from steadygrad.fixedpoint.picard import Picard
from steadygrad.fixedpoint.solver import FixedPointSolver, Outcome

__all__ = ["FixedPointSolver", "Outcome", "Picard"]
