"""Graphs: messages as one sparse product, a diffusion with a steady state, and a classifier of nodes made of it."""

from steadygrad.models.graph.classifier import GraphClassifier
from steadygrad.models.graph.diffusion import GraphDiffusion
from steadygrad.models.graph.network import GraphNetwork
from steadygrad.models.graph.propagation import neighbours, normalised, undirected

__all__ = ["GraphClassifier", "GraphDiffusion", "GraphNetwork", "neighbours", "normalised", "undirected"]
