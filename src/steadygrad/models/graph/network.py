"""An implicit graph network as a module: a small network of each node, then diffusion to its steady state."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

import steadygrad as sg
from steadygrad.models.graph.diffusion import GraphDiffusion


class GraphNetwork(nn.Module):
    """z = two layers on each node's features, then h* = (1 − α) Â h* + α z: in the memory of one step.

    Called as torch_geometric's networks are, model(x, edge_index); that library is not needed.

    >>> import torch
    >>> model = GraphNetwork(features=4, classes=2)
    >>> scores = model(torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]]))
    >>> scores.shape, model.diffuse.solution.converged
    (torch.Size([3, 2]), True)
    >>> loss = torch.nn.functional.cross_entropy(scores[:2], torch.tensor([0, 1])) + model.diffuse.penalty()
    >>> loss.backward()
    """

    def __init__(self, features: int, classes: int, *, hidden: int = 64, dropout: float = 0.5, alpha: float = 0.1) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(features, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )
        self.diffuse = GraphDiffusion(alpha)

    def forward(self, x: Tensor, edges: Tensor | sg.SparseMatrix) -> Tensor:
        """(nodes, classes) scores; `edges` as in `GraphDiffusion`."""
        return self.diffuse(self.encode(x), edges)

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Parameters for an optimiser, with decay for the first layer only, as is usual for these networks."""
        first = [*self.encode[1].parameters()]
        rest = [*self.encode[4].parameters(), *self.diffuse.parameters()]
        return [{"params": first, "weight_decay": weight_decay}, {"params": rest}]
