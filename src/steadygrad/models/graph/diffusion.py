"""A diffusion over a graph whose steady state is the answer: a layer for scores of nodes, whatever made them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import steadygrad as sg
from steadygrad.models.graph.propagation import normalised


class GraphDiffusion(nn.Module):
    """h* = (1 − α) Â h* + α z: learned, restarted diffusion of scores z over a graph, z entering at every step.

    α = floor + (1 − floor) σ(l) is learned. Â is symmetric with ‖Â‖₂ = 1, so J = (1 − α) Â ⊗ I and ‖J‖₂ = 1 − α ≤ 1 − floor:
    a contraction whatever the weights, hence one steady state. `penalty()`, prior·(l − l₀)², keeps α near its start: left
    free, few labels make it drift upwards, since they are fitted best without neighbours. APPNP is its first ten steps with a
    fixed α (Gasteiger et al. 2019).

    The start h₀ = z is h* already where Â has the eigenvalue 1, in the slowest mode, so that a cold start needs no more steps
    than a warm one. A gradient cut after K steps has 1 − (1 − α)ᴷ of the adjoint there: 23 % for α = 0.05 and K = 5.

    A module as torch_geometric has them, called with what nodes have and an `edge_index`; that library is not needed.

    >>> path = torch.tensor([[0, 1], [1, 2]])
    >>> layer = GraphDiffusion(alpha=0.5)
    >>> spread = layer(torch.tensor([[1.0], [0.0], [0.0]]), path)
    >>> [round(mark, 2) for mark in spread.flatten().tolist()]  # the first node's mark, spread over the path
    [0.72, 0.19, 0.05]
    >>> layer.solution.converged
    True
    """

    def __init__(
        self,
        alpha: float = 0.1,
        *,
        prior: float = 0.3,
        floor: float = 0.01,
        search: sg.Picard = sg.Picard(max_steps=300, rtol=1e-4),
        gradient: str | sg.Implicit = "auto",
    ) -> None:
        super().__init__()
        if not 0 <= floor < 1:
            raise ValueError(f"floor must be at least 0 and below 1, so that the diffusion contracts; got {floor}.")
        if not floor < alpha < 1:
            raise ValueError(f"alpha must lie between floor={floor} and 1; got {alpha}.")
        self.prior, self.floor, self.search, self.gradient = prior, floor, search, gradient
        self.centre = math.log((alpha - floor) / (1 - alpha))
        self.logit = nn.Parameter(torch.tensor(self.centre))
        self.solution: sg.Solution | None = None
        """The last solve, its value detached."""

    @property
    def alpha(self) -> Tensor:
        """The share of z in each step."""
        return self.floor + (1 - self.floor) * torch.sigmoid(self.logit)

    def update(self, z: Tensor, adjacency: sg.SparseMatrix) -> Callable[[Tensor], Tensor]:
        """F of this z with the present α, for `sg.steady_state` and `sg.diagnose`."""
        alpha = self.alpha
        source, rest = alpha * z, 1 - alpha

        def update(h: Tensor) -> Tensor:
            return torch.addcmul(source, adjacency @ h, rest)

        return update

    def forward(self, z: Tensor, edges: Tensor | sg.SparseMatrix) -> Tensor:
        """The steady state, (nodes, scores). `edges`: (2, E), or Â from `normalised`, which saves making it at every call."""
        adjacency = normalised(edges, len(z)) if isinstance(edges, Tensor) else edges
        solution = sg.steady_state(self.update(z, adjacency), z.detach(), forward=self.search, gradient=self.gradient)
        self.solution = replace(solution, value=solution.value.detach())
        return solution.value

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "solution": None}  # the last graph has no place in a saved model

    def penalty(self) -> Tensor:
        """What is to be added to the loss."""
        return self.prior * (self.logit - self.centre) ** 2
