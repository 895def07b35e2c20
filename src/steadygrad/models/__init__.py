"""Models to take away, made of the library's parts: an associative memory, graph networks, an image classifier."""

from steadygrad.models.graph import GraphClassifier, GraphDiffusion, GraphNetwork
from steadygrad.models.hopfield import AssociativeMemory, Hopfield, MemoryWarning, Stored, corrupt
from steadygrad.models.images import ContractiveCell, EquilibriumClassifier

__all__ = [
    "AssociativeMemory",
    "ContractiveCell",
    "EquilibriumClassifier",
    "GraphClassifier",
    "GraphDiffusion",
    "GraphNetwork",
    "Hopfield",
    "MemoryWarning",
    "Stored",
    "corrupt",
]
