"""Cotangents and starts of any size, order and origin give the same gradient."""

import pytest
import torch

import steadygrad as sg
from problems import relative

IMPLICIT = ["auto", "rbp", "cg-rbp", "lsqr", "gmres", "bicgstab", "anderson", "neumann-rbp", "dense"]


@pytest.mark.parametrize("scale", [1e-30, 1e-24, 1e-21, 1e-8, 1.0, 1e19, 1e30])
@pytest.mark.parametrize("gradient", IMPLICIT)
def test_cotangents_of_any_size(gradient, scale):
    D = torch.tensor([0.5, 0.1, 0.3, 0.4, 0.2])
    x = torch.randn(5, requires_grad=True)
    solution = sg.steady_state(lambda h: D * h + x, torch.zeros(5), gradient=gradient)
    (solution.value * scale).sum().backward()
    assert torch.allclose(x.grad / scale, 1 / (1 - D), rtol=1e-4)
    assert solution.adjoint.residual < 1e-4


@pytest.mark.parametrize("scale", [1e-3, 1e-9, -3e-9, 1e9])
@pytest.mark.parametrize("gradient", ["auto", "gmres", "bicgstab", "lsqr", "cg-rbp"])
def test_warm_adjoint_of_another_scale(gradient, scale):
    W = (0.5 * torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64))[0]).requires_grad_()
    options = {"h0": torch.zeros(12).double(), "gradient": gradient, "forward": sg.Picard(500, 1e-12)}
    cold = sg.steady_state(lambda h: torch.tanh(W @ h + 1), **options)
    (expected,) = torch.autograd.grad(cold.value.sum(), W)
    warm = sg.steady_state(lambda h: torch.tanh(W @ h + 1), warm=cold, **options)
    (grad,) = torch.autograd.grad(scale * warm.value.sum(), W)
    assert warm.adjoint.converged
    assert relative(grad / scale, expected) < 1e-7


def test_warm_start_minds_keys_not_their_order():
    start = {"a": torch.ones(1), "b": -torch.ones(1)}
    first = sg.steady_state(lambda h: {key: torch.tanh(2 * value) for key, value in h.items()}, start)
    other = {"b": start["b"], "a": start["a"]}
    second = sg.steady_state(lambda h: {key: torch.tanh(2 * value) for key, value in h.items()}, other, warm=first)
    assert torch.allclose(second.value["a"], first.value["a"])


@pytest.mark.parametrize("seed", [1, 2, 15])
@pytest.mark.parametrize("ratio", [1e-6, 1.0, 1e4])
def test_newton_on_leaves_of_different_units(ratio, seed):
    """Its steps are solved for and judged in the units of the leaves: in float32 one leaf would be rounding to the other."""
    generator = torch.Generator().manual_seed(seed)
    W = torch.randn(8, 8, generator=generator)
    W, x = 0.95 * W / torch.linalg.matrix_norm(W, 2), torch.randn(3, 8, generator=generator).requires_grad_()

    def update(h):
        new = torch.relu(torch.cat([h["a"], h["b"] / ratio], -1) @ W.T + x)
        return {"a": new[:, :3], "b": ratio * new[:, 3:]}

    solution = sg.steady_state(update, {"a": torch.zeros(3, 3), "b": torch.zeros(3, 5)}, forward=sg.Newton())
    assert solution.converged
    exact = sg.steady_state(
        lambda h: torch.relu(h @ W.T.double() + x.double()),
        torch.zeros(3, 8).double(),
        forward=sg.Picard(rtol=1e-12, max_steps=2000),
    )
    assert relative(torch.cat([solution.value["a"], solution.value["b"] / ratio], -1).double(), exact.value) < 1e-5
