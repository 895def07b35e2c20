"""The networks: the paper's GRU as published, a diffusion that has a steady state, and two references without one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from steadygrad.models.graph import GraphDiffusion
from steadygrad.sparse import SparseMatrix


@dataclass(frozen=True)
class Dynamics:
    """F of one solve, and the state to start from."""

    update: Callable[[Tensor], Tensor]
    start: Tensor


class Recurrent(nn.Module, ABC):
    """A network whose answer is read from the steady state of its dynamics."""

    @abstractmethod
    def dynamics(self) -> Dynamics:
        """F with the present weights; dropout is drawn here, once a solve."""

    @abstractmethod
    def read(self, h: Tensor) -> Tensor:
        """(nodes, classes) scores."""

    def penalty(self) -> Tensor | None:
        """What is added to the loss."""
        return None


class PublishedGRU(Recurrent):
    """h ← GRU(Σ_neighbours h, h) from h₀ = x, read out linearly: x enters through h₀ only. Liao et al. 2018, section 5.2.

    Weights are Kaiming-normal and biases zero, as in the released code. A steady state of this F does not depend on x, and
    the sum over neighbours has ρ(A) ≫ 1, so that there need be none: at the initial weights ρ(J) is 1.9 on Cora, 2.7 on Pubmed.

    The cell is that of nn.GRUCell in four matrix products, with gates fused and no copy in between.
    """

    def __init__(self, adjacency: SparseMatrix, features: Tensor, classes: int, seed: int = 0) -> None:
        super().__init__()
        size = features.shape[1]
        self.adjacency, self.classes, self.size = adjacency, classes, size
        self.register_buffer("features", features)
        self.features: Tensor
        self.cell = nn.GRUCell(size, size)
        self.out = nn.Linear(size, classes)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.kaiming_normal_(parameter, generator=generator)
            else:
                nn.init.zeros_(parameter)

    def dynamics(self) -> Dynamics:
        cell, parts = self.cell, [2 * self.size, self.size]
        gates_in, new_in = cell.weight_ih.split(parts)
        gates_own, new_own = cell.weight_hh.split(parts)
        gates_bias = (cell.bias_ih + cell.bias_hh)[: 2 * self.size]
        new_bias, own_bias = cell.bias_ih[2 * self.size :], cell.bias_hh[2 * self.size :]

        def update(h: Tensor) -> Tensor:
            a = self.adjacency @ h
            gates = torch.addmm(torch.addmm(gates_bias, a, gates_in.T), h, gates_own.T).sigmoid()
            reset, keep = gates.split(self.size, dim=1)
            own = torch.addmm(own_bias, h, new_own.T)
            new = torch.addcmul(torch.addmm(new_bias, a, new_in.T), reset, own).tanh()
            return torch.lerp(new, h, keep)

        return Dynamics(update, self.features)

    def read(self, h: Tensor) -> Tensor:
        return self.out(h)

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return [{"params": list(self.parameters()), "weight_decay": weight_decay}]


class Linear(nn.Module):
    """The released code's baseline: one linear layer on each node's features alone, trained as the recurrent network is."""

    def __init__(self, features: Tensor, outputs: int, seed: int = 0) -> None:
        super().__init__()
        self.register_buffer("features", features)
        self.features: Tensor
        self.out = nn.Linear(features.shape[1], outputs)
        nn.init.kaiming_normal_(self.out.weight, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(self.out.bias)

    def forward(self) -> Tensor:
        return self.out(self.features)

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return [{"params": list(self.parameters()), "weight_decay": weight_decay}]


class Encoder(nn.Module):
    """z(x): two layers on sparse features, of each node alone. Dropout on the features and on the hidden layer."""

    def __init__(self, features: SparseMatrix, hidden: int, classes: int, drop: float, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.features, self.drop = features, drop
        self.first = nn.Parameter(nn.init.xavier_uniform_(torch.empty(features.shape[1], hidden), generator=generator))
        self.first_bias = nn.Parameter(torch.zeros(hidden))
        self.second = nn.Parameter(nn.init.xavier_uniform_(torch.empty(classes, hidden), generator=generator))
        self.second_bias = nn.Parameter(torch.zeros(classes))

    def hidden(self) -> Tensor:
        """X W₁, with dropout on the entries of X."""
        x = self.features
        if self.training and self.drop:
            x = x.with_values(dropout(x.values, self.drop))
        return x @ self.first

    def forward(self) -> Tensor:
        hidden = torch.relu(self.hidden() + self.first_bias)
        return linear(dropout(hidden, self.drop, self.training), self.second, self.second_bias)

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Decay is for the first layer only, as is usual for these networks."""
        return [
            {"params": [self.first, self.first_bias], "weight_decay": weight_decay},
            {"params": [self.second, self.second_bias]},
        ]


class Diffusion(GraphDiffusion, Recurrent):
    """`sg.models.GraphDiffusion` on this graph, of the scores z(x) that the encoder gives. The start is h₀ = z."""

    def __init__(
        self, adjacency: SparseMatrix, encode: Encoder, *, alpha: float = 0.1, prior: float = 0.3, floor: float = 0.01
    ) -> None:
        super().__init__(alpha=alpha, prior=prior, floor=floor)
        self.adjacency, self.encode = adjacency, encode

    def dynamics(self) -> Dynamics:
        z = self.encode()
        return Dynamics(self.update(z, self.adjacency), z.detach())

    def read(self, h: Tensor) -> Tensor:
        return h

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return [*self.encode.groups(weight_decay), {"params": [self.logit]}]


class APPNP(nn.Module):
    """Ten steps of the same diffusion with a fixed α, not a steady state. Gasteiger, Bojchevski and Günnemann 2019."""

    def __init__(self, adjacency: SparseMatrix, encode: Encoder, *, alpha: float = 0.1, steps: int = 10) -> None:
        super().__init__()
        self.adjacency, self.encode, self.alpha, self.steps = adjacency, encode, alpha, steps

    def forward(self) -> Tensor:
        z = self.encode()
        h = z
        for _ in range(self.steps):
            h = (1 - self.alpha) * (self.adjacency @ h) + self.alpha * z
        return h

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return self.encode.groups(weight_decay)


class GCN(nn.Module):
    """Two layers of Â ReLU(Â X W₁) W₂. Kipf and Welling 2017."""

    def __init__(self, adjacency: SparseMatrix, encode: Encoder) -> None:
        super().__init__()
        self.adjacency, self.encode = adjacency, encode

    def forward(self) -> Tensor:
        e = self.encode
        hidden = torch.relu(self.adjacency @ e.hidden() + e.first_bias)
        return self.adjacency @ linear(dropout(hidden, e.drop, self.training), e.second) + e.second_bias

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        return self.encode.groups(weight_decay)


Network = PublishedGRU | Diffusion | APPNP | GCN | Linear
