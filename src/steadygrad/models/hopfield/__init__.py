"""A continuous Hopfield network, how it learns, and the memory for one's own images that is made of it."""

from steadygrad.models.hopfield.memory import AssociativeMemory
from steadygrad.models.hopfield.network import Hopfield
from steadygrad.models.hopfield.stored import MemoryWarning, Stored, corrupt

__all__ = ["AssociativeMemory", "Hopfield", "MemoryWarning", "Stored", "corrupt"]
