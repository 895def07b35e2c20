"""Forward solvers for roots g(h) = 0 and minima of energies, written as steady states of h − g(h)."""

from steadygrad.roots.minimise import EnergyStep, Minimise, scale_for
from steadygrad.roots.newton import Newton, RootStep
from steadygrad.roots.newton_cg import NewtonCG

__all__ = ["EnergyStep", "Minimise", "Newton", "NewtonCG", "RootStep", "scale_for"]
