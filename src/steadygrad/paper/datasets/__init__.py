"""The embedded data, and the small types through which a user's own graph or images come in."""

from steadygrad.paper.datasets.embedded import CorruptDataError, citations, cora, mnist, pubmed
from steadygrad.paper.datasets.types import Graph, Images, undirected

__all__ = ["CorruptDataError", "Graph", "Images", "citations", "cora", "mnist", "pubmed", "undirected"]
