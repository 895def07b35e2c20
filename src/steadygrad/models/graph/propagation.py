"""Messages along the edges of a graph as one sparse product."""

from __future__ import annotations

import torch
from torch import Tensor

from steadygrad.sparse import SparseMatrix


def undirected(links: Tensor) -> Tensor:
    """Both directions of each link once: duplicates and self links dropped, sorted by source, then by target.

    >>> undirected(torch.tensor([[0, 1, 2, 0], [1, 0, 2, 2]])).tolist()  # 0–1 twice, 2–2, 0–2
    [[0, 0, 1, 2], [1, 2, 0, 0]]
    """
    proper = links[:, links[0] != links[1]]
    return torch.unique(torch.cat([proper, proper.flip(0)], 1), dim=1)


def neighbours(edge_index: Tensor, nodes: int) -> SparseMatrix:
    """A: (A h)_i is the sum of h over the sources of the edges into node i. A duplicate edge counts twice."""
    ones = torch.ones(edge_index.shape[1])
    return SparseMatrix.of_entries(edge_index[1], edge_index[0], ones, (nodes, nodes))


def normalised(edge_index: Tensor, nodes: int) -> SparseMatrix:
    """Â = D^-½ (A + I) D^-½ of the undirected graph without duplicates; D has the row sums of A + I. Kipf and Welling 2017.

    Â is symmetric with ‖Â‖₂ = ρ(Â) = 1. Every node gets one self loop, whether the edges have it or not, so that an isolated
    node has Â_ii = 1 and keeps what it has.
    """
    own = torch.arange(nodes).expand(2, -1)
    rows, columns = torch.cat([undirected(edge_index), own], dim=1)
    scale = torch.bincount(rows, minlength=nodes).double().rsqrt()
    return SparseMatrix.of_entries(rows, columns, (scale[rows] * scale[columns]).float(), (nodes, nodes))
