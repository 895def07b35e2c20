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


def check_edges(edge_index: Tensor, nodes: int) -> None:
    """Refuse what is not (2, E) whole numbers from 0 on, below the number of nodes."""
    whole = not edge_index.dtype.is_floating_point and not edge_index.dtype.is_complex and edge_index.dtype != torch.bool
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or not whole:
        raise ValueError(
            "edges must be whole numbers of shape (2, E), sources above targets, as edge_index of torch_geometric; got "
            f"{edge_index.dtype} of shape {tuple(edge_index.shape)}."
        )
    if not edge_index.numel():
        return
    least, most = int(edge_index.min()), int(edge_index.max())
    if least < 0 or most >= nodes:
        raise ValueError(f"edges name nodes from {least} to {most}, but there are {nodes} nodes, counted from 0.")


def neighbours(edge_index: Tensor, nodes: int) -> SparseMatrix:
    """A: (A h)_i is the sum of h over the sources of the edges into node i. A duplicate edge counts twice."""
    ones = torch.ones(edge_index.shape[1])
    return SparseMatrix.of_entries(edge_index[1], edge_index[0], ones, (nodes, nodes))


def normalised(edge_index: Tensor, nodes: int) -> SparseMatrix:
    """Â = D^-½ (A + I) D^-½ of the undirected graph without duplicates; D has the row sums of A + I. Kipf and Welling 2017.

    Â is symmetric with ‖Â‖₂ = ρ(Â) = 1. Every node gets one self loop, whether the edges have it or not, so that an isolated
    node has Â_ii = 1 and keeps what it has.
    """
    check_edges(edge_index, nodes)
    own = torch.arange(nodes).expand(2, -1)
    rows, columns = torch.cat([undirected(edge_index), own], dim=1)
    scale = torch.bincount(rows, minlength=nodes).double().rsqrt()
    return SparseMatrix.of_entries(rows, columns, (scale[rows] * scale[columns]).float(), (nodes, nodes))
