"""A graph whose nodes are to be classified, and a stack of labelled images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.models.graph.propagation import undirected as undirected


@dataclass(frozen=True, eq=False)
class Graph:
    """N nodes with F features and a class each, and E directed edges.

    A message goes from node `edge_index[0, e]` to node `edge_index[1, e]`, as in torch_geometric. An undirected link is two
    edges, which `undirected` makes from a list of links. Edges are taken as they are: a duplicate counts twice, and a self
    loop is an edge.

    >>> Graph("path", torch.eye(3), torch.tensor([0, 1, 0]), undirected(torch.tensor([[0, 1], [1, 2]])), ("end", "middle"))
    Graph('path', 3 nodes, 4 edges, 3 features, 2 classes)
    """

    name: str
    features: Tensor
    """(N, F) float"""
    labels: Tensor
    """(N,) int64, from 0 to classes − 1"""
    edge_index: Tensor
    """(2, E) int64"""
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or not self.features.is_floating_point():
            raise ValueError(f"features must be a float tensor of shape (nodes, features); got {_describe(self.features)}.")
        if self.labels.dtype != torch.int64 or self.labels.shape != (self.nodes,):
            raise ValueError(f"labels must be int64 of shape ({self.nodes},), one a node; got {_describe(self.labels)}.")
        if self.edge_index.dtype != torch.int64 or self.edge_index.ndim != 2 or len(self.edge_index) != 2:
            raise ValueError(f"edge_index must be int64 of shape (2, edges); got {_describe(self.edge_index)}.")
        _check_range("labels", self.labels, self.classes, "class_names names the classes")
        _check_range("edge_index", self.edge_index, self.nodes, "features has a row a node")

    @property
    def nodes(self) -> int:
        return len(self.features)

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def __repr__(self) -> str:
        edges, width = self.edge_index.shape[1], self.features.shape[1]
        return f"Graph({self.name!r}, {self.nodes:,} nodes, {edges:,} edges, {width:,} features, {self.classes} classes)"


@dataclass(frozen=True, eq=False)
class Images:
    """N grey images with a class each; 0 is the background and 255 full ink.

    >>> Images("blank", torch.zeros(2, 28, 28, dtype=torch.uint8), torch.tensor([0, 1]))
    Images('blank', 2 of 28 × 28)
    """

    name: str
    images: Tensor
    """(N, height, width) uint8"""
    labels: Tensor
    """(N,) int64"""

    def __post_init__(self) -> None:
        if self.images.ndim != 3 or self.images.dtype != torch.uint8:
            raise ValueError(f"images must be uint8 of shape (count, height, width); got {_describe(self.images)}.")
        if self.labels.dtype != torch.int64 or self.labels.shape != (len(self.images),):
            raise ValueError(f"labels must be int64 of shape ({len(self.images)},), one an image; got {_describe(self.labels)}.")

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        count, height, width = self.images.shape
        return f"Images({self.name!r}, {count:,} of {height} × {width})"


def _check_range(what: str, values: Tensor, count: int, reason: str) -> None:
    if values.numel() and not (int(values.min()) >= 0 and int(values.max()) < count):
        found = f"{int(values.min())} to {int(values.max())}"
        raise ValueError(f"{what} must lie between 0 and {count - 1}, since {reason}; got {found}.")


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"
