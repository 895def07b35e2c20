"""Whether a product with J is little work, by the graph of F alone."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import steadygrad as sg
from steadygrad.update.burden import is_light


class Unknown(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad


def deep(h):
    for _ in range(30):
        h = torch.tanh(h)
    return h


def linear(h):
    return h @ torch.ones(h.shape[-1], h.shape[-1])


@pytest.mark.parametrize(
    ("update", "shape", "light"),
    [
        (linear, (32, 64), True),
        (linear, (64,), True),
        (linear, (1, 4096), False),
        (linear, (4096,), False),
        (deep, (2, 3), False),
        (lambda h: Unknown.apply(h), (2, 3), False),
        (lambda h: checkpoint(deep, h, use_reentrant=False), (2, 3), False),
        (lambda h: torch.cat([h, h]).narrow(0, 0, 2), (2, 3), True),
        (lambda h: h.repeat(1, 5000).view(2, 5000, 3).mean(1), (2, 3), False),
        (nn.Conv2d(4, 4, 3, padding=1), (2, 4, 8, 8), True),
        (nn.Conv2d(4, 64, 3, padding=1), (8, 4, 32, 32), False),
    ],
)
def test_by_nodes_numbers_and_what_is_unknown(update, shape, light):
    assert is_light([update(torch.ones(shape, requires_grad=True))]) is light


def test_auto_sees_it_in_a_call():
    """The same J, once behind a Function of which nothing is known: fewer products are spent on that."""
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(64, 64, generator=generator, dtype=torch.float64)
    W = (0.9 * W / torch.linalg.eigvals(W).abs().max()).float()
    x = torch.randn(32, 64, generator=generator).requires_grad_()
    b = torch.randn(32, 64, generator=generator)
    products = []
    for update in (lambda h: h @ W.T + x, lambda h: Unknown.apply(h @ W.T) + x):
        solution = sg.steady_state(update, torch.zeros(32, 64))
        (solution.value * b).sum().backward()
        assert solution.adjoint is not None
        assert solution.adjoint.converged
        products.append(solution.adjoint.products)
    assert products[0] > 2 * products[1]
