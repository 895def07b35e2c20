"""Nested states, and the rows that the solvers work on."""

from steadygrad.state.layout import Layout, in_full_precision
from steadygrad.state.tree import State, in_order, leaves_of, map_state, structure_of

__all__ = ["Layout", "State", "in_full_precision", "in_order", "leaves_of", "map_state", "structure_of"]
