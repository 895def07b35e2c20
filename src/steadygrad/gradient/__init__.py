"""Ways to give a steady state its derivative."""

from steadygrad.gradient.artbp import ARTBP
from steadygrad.gradient.implicit import Implicit
from steadygrad.gradient.phantom import Phantom
from steadygrad.gradient.problem import Gradient, Problem, Solved
from steadygrad.gradient.unrolled import BPTT, TBPTT

__all__ = ["ARTBP", "BPTT", "TBPTT", "Gradient", "Implicit", "Phantom", "Problem", "Solved"]
