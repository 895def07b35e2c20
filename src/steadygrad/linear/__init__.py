"""Solvers of the adjoint equation (I − Jᵀ) z = b."""

from steadygrad.linear.auto import Auto
from steadygrad.linear.bicgstab import BiCGSTAB
from steadygrad.linear.dense import Dense
from steadygrad.linear.gmres import GMRES
from steadygrad.linear.lsqr import LSQR
from steadygrad.linear.neumann import Neumann
from steadygrad.linear.normal_cg import NormalCG
from steadygrad.linear.recurrence import Recurrence
from steadygrad.linear.solver import AdjointSolver, LinearSolver
from steadygrad.linear.symmetric import CG, MINRES
from steadygrad.linear.system import LinearSolution, System

__all__ = [
    "CG",
    "GMRES",
    "LSQR",
    "MINRES",
    "AdjointSolver",
    "Auto",
    "BiCGSTAB",
    "Dense",
    "LinearSolution",
    "LinearSolver",
    "Neumann",
    "NormalCG",
    "Recurrence",
    "System",
]
