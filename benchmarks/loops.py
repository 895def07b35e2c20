"""The problem most rows share, F(h) = tanh(h Wᵀ + x), and the loops one would write by hand for it in torch.

The hand-written loops know the shapes, check nothing and certify nothing. The loss is ‖h‖², of which all are given the derivative
2h, and the gradient is that of W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import steadygrad as sg

TINY = (2, 8)
"""Rows and size of a state where it only matters that the code runs."""
LIMIT = 2000
"""Steps of a loop to a tolerance, at most; none of the rows needs as many."""


@dataclass(frozen=True)
class Network:
    """F(h) = tanh(h Wᵀ + x) from h = 0."""

    W: Tensor
    x: Tensor

    @staticmethod
    def random(rows: int, size: int, radius: float = 0.5, dtype: torch.dtype = torch.float32, seed: int = 0) -> Network:
        """W Gaussian, scaled to the spectral radius `radius`; the same numbers in every dtype."""
        generator = torch.Generator().manual_seed(seed)
        W = torch.randn(size, size, generator=generator, dtype=torch.float64)
        W = radius * W / torch.linalg.eigvals(W).abs().max()
        x = INPUT * torch.randn(rows, size, generator=generator, dtype=torch.float64)
        return Network(W.to(dtype).requires_grad_(), x.to(dtype))

    def __call__(self, h: Tensor) -> Tensor:
        return torch.tanh(h @ self.W.T + self.x)

    @property
    def start(self) -> Tensor:
        return torch.zeros_like(self.x)

    def exact(self) -> Tensor:
        """The gradient of W to ten digits: both loops in float64, far beyond the tolerances that are compared."""
        network = Network(self.W.detach().double().requires_grad_(), self.x.double())
        return by_hand_to(network, 1e-12).gradient


INPUT = 0.1
"""Size of x: tanh' is then near 1, so that the loops to 1e-5 take 17, 43 and 111 to 141 steps at ρ(W) = 0.5, 0.8, 0.95."""


def usual_norm(numbers: int) -> float:
    """‖x‖ to be expected of as many numbers: the scale of an absolute tolerance without a look at x, which vmap forbids."""
    return INPUT * math.sqrt(numbers)


@dataclass(frozen=True)
class Answer:
    """A gradient, and what it took."""

    gradient: Tensor
    steps: int
    """Evaluations of F on the way to the steady state."""
    products: int
    """Products with J or Jᵀ."""


def by_hand(network: Network, T: int, K: int) -> Tensor:
    """T steps, then K products: Neumann-RBP of K + 1 terms, as one would write it."""
    h = network.start
    with torch.no_grad():
        for _ in range(T):
            h = network(h)
    leaf = h.detach().requires_grad_()
    image = network(leaf)
    z = v = 2 * h
    for _ in range(K):
        (v,) = torch.autograd.grad(image, leaf, v, retain_graph=True)
        z = z + v
    return torch.autograd.grad(image, network.W, z)[0]


def by_hand_to(network: Network, rtol: float) -> Answer:
    """The same to a tolerance both ways, with a norm after each step."""
    h = network.start
    steps = products = 0
    with torch.no_grad():
        while steps < LIMIT:
            new = network(h)
            steps += 1
            moved = (new - h).norm()
            h = new
            if moved <= rtol * h.norm():
                break
    leaf = h.detach().requires_grad_()
    image = network(leaf)
    b = 2 * h
    goal = rtol * b.norm()
    z = v = b
    while products < LIMIT:
        (v,) = torch.autograd.grad(image, leaf, v, retain_graph=True)
        products += 1
        if v.norm() <= goal:
            break
        z = z + v
    return Answer(torch.autograd.grad(image, network.W, z)[0], steps, products)


def by_library(network: Network, **options: Any) -> Answer:
    """The same by sg.steady_state with these options; F is a closure, as in most users' code.

    Its cotangent is given, as it is in the loops by hand: a loss, and autograd through it, would be timed on one side only.
    """
    W, x = network.W, network.x
    solution = sg.steady_state(lambda h: torch.tanh(h @ W.T + x), network.start, **options)
    (gradient,) = torch.autograd.grad(solution.value, W, 2 * solution.value.detach())
    return Answer(gradient, solution.steps, 0 if solution.adjoint is None else solution.adjoint.products)


def error(found: Any, exact: Tensor) -> float:
    """‖found − exact‖ / ‖exact‖, of a tensor or of an array of JAX."""
    tensor = found if isinstance(found, Tensor) else torch.from_numpy(np.array(found))
    return float((tensor.double() - exact.double()).norm() / exact.double().norm())
