"""Small graphs and networks on them, for the tests of the citation experiment."""

from __future__ import annotations

import torch
from torch import Tensor

from steadygrad.paper.datasets import Graph
from steadygrad.paper.experiments.citation import Diffusion, PublishedGRU, Split, data, neighbours, normalised, own, planted
from steadygrad.paper.experiments.citation.model import Encoder
from steadygrad.sparse import SparseMatrix

# 0–1–2–0 is a triangle (0–1 twice), 3 hangs on 2, 4 loops, 5 is alone.
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 0], [1, 0, 2, 0, 2, 4, 1]])
NODES = 6


def graph() -> Graph:
    return planted(60, classes=3, features=9, seed=1)


def diffusion(g: Graph, seed: int = 0, alpha: float = 0.3) -> Diffusion:
    encode = Encoder(SparseMatrix.of_dense(g.features), 5, g.classes, 0.0, seed)
    return Diffusion(normalised(g.edge_index, g.nodes), encode, alpha=alpha).double()


def gru(g: Graph, size: int = 4) -> PublishedGRU:
    return PublishedGRU(neighbours(g.edge_index, g.nodes), data.principal(g.features, size), g.classes).double()


def with_edges(edges: Tensor, features: Tensor | None = None) -> tuple[Graph, Split]:
    x = torch.eye(NODES) if features is None else features
    masks = torch.eye(3, dtype=torch.bool).repeat(1, 2)
    names = ("train_mask", "val_mask", "test_mask")
    return own(edges, x, torch.tensor([0, 0, 0, 1, 1, 1]), **dict(zip(names, masks, strict=True)))
