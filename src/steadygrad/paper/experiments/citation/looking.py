"""What is measured of a network on a graph: how its state moves, its Jacobian there, its diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from steadygrad import Solution
from steadygrad.diagnose import diagnose
from steadygrad.diagnose.spectrum import spectrum
from steadygrad.paper.experiments.citation.data import Split
from steadygrad.paper.experiments.citation.model import Dynamics, Recurrent
from steadygrad.state import Layout
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian


@dataclass(frozen=True)
class Way:
    """The way of the state from its start, an entry a step."""

    state: Tensor
    scaled: list[float]
    """‖h_t − h_{t−1}‖ / elements of h, as the paper plots it."""
    relative: list[float]
    """‖h_t − h_{t−1}‖ / ‖h_t‖."""


@torch.no_grad()
def follow(dynamics: Dynamics, steps: int) -> Way:
    h = dynamics.start
    scaled: list[float] = []
    relative: list[float] = []
    for _ in range(steps):
        new = dynamics.update(h)
        moved = float((new - h).norm())
        scaled.append(moved / h.numel())
        relative.append(moved / max(float(new.norm()), torch.finfo(h.dtype).tiny))
        h = new
    return Way(h, scaled, relative)


def differences(solution: Solution) -> tuple[float, float]:
    """The last step's difference norm in the paper's scaling, and relative to the state."""
    relative, h = solution.residuals[-1][1], solution.value.detach()
    return relative * float(h.norm()) / h.numel(), relative


def spectral_radius(dynamics: Dynamics, h: Tensor, products: int = 160) -> float:
    """ρ(J) at h by Arnoldi, to about a percent."""
    layout = Layout.of(h, 0)
    jacobian = Jacobian(Update(dynamics.update, (), layout), layout.flatten([h.detach()]))
    start = torch.randn(1, h.numel(), generator=torch.Generator().manual_seed(0)).to(h.dtype)
    return float(spectrum(jacobian, start, products=products, accuracy=1e-2).radius.max())


def cotangent(network: Recurrent, h: Tensor, labels: Tensor, split: Split) -> Tensor:
    """b = ∂L/∂h of the training loss: the right-hand side of the adjoint equation."""
    leaf = h.detach().requires_grad_()
    (b,) = torch.autograd.grad(cross_entropy(network.read(leaf)[split.train], labels[split.train]), leaf)
    return b


def examine(dynamics: Dynamics, h: Tensor, b: Tensor) -> dict[str, Any]:
    """What sg.diagnose says of the state, without the runs from other starts."""
    return diagnose(dynamics.update, h.detach(), cotangent=b, starts=False).to_dict()
