"""Tensors that F saves for its derivative and then changes in place: an error where plain torch has one, and only there."""

import pytest
import torch
from torch import nn

import steadygrad as sg
from problems import relative
from steadygrad.state import Layout
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian

CHANGED = "modified by an inplace operation"
a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
x = torch.linspace(-1, 1, 5, dtype=torch.float64)
H = torch.zeros(5, dtype=torch.float64)


def own_temporary(h):
    y = torch.sigmoid(a * h + x)
    y *= 0.5
    return y


def beside_torch_func(h):
    """torch.func switches the hooks off by which the saved tensors are watched."""
    return own_temporary(h) + 0.01 * torch.func.grad(lambda u: u.sin().sum())(h)


@pytest.mark.parametrize("F", [own_temporary, beside_torch_func])
@pytest.mark.parametrize("gradient", ["auto", "rbp", "cg-rbp", "neumann-rbp", "lsqr", "dense", "phantom", "bptt", "tbptt"])
def test_own_temporary(F, gradient):
    with pytest.raises(RuntimeError, match=CHANGED):
        sg.steady_state(F, H, gradient=gradient).value.sum().backward()


@pytest.mark.parametrize("F", [own_temporary, beside_torch_func])
def test_own_temporary_with_higher_derivatives(F):
    with pytest.raises(RuntimeError, match=CHANGED):
        sg.steady_state(F, H, derivatives=2).value.sum().backward()


@pytest.mark.parametrize("product", ["vjp", "jvp", "dense"])
def test_own_temporary_in_products(product):
    """Newton and diagnose multiply by J without a backward pass of the user's."""
    layout = Layout.of(H)
    jacobian = Jacobian(Update(own_temporary, (), layout), layout.flatten([H]))
    with pytest.raises(sg.SteadyStateError, match=f"{CHANGED}.*version.*out-of-place"):
        getattr(jacobian, product)(*([] if product == "dense" else [torch.ones(1, 5, dtype=torch.float64)]))


@pytest.mark.parametrize("derivatives", [1, 2])
@pytest.mark.parametrize("gradient", ["auto", "cg-rbp", "dense"])
def test_buffer_written_between_solve_and_backward(gradient, derivatives):
    buffer = torch.full((5,), 0.4, dtype=torch.float64)
    value = sg.steady_state(lambda h: torch.tanh(buffer * h * a + x), H, gradient=gradient, derivatives=derivatives).value
    buffer.mul_(2)
    with pytest.raises(RuntimeError, match=CHANGED):
        value.sum().backward()


def test_buffer_written_by_another_solve_before_backward():
    buffer = torch.zeros(5, dtype=torch.float64)

    def reusing(h):
        buffer.copy_(h.detach())
        return 0.3 * torch.tanh(a * h + x) + 0.1 * a * buffer

    value = sg.steady_state(reusing, H, forward=sg.Picard(max_steps=50)).value
    sg.steady_state(reusing, H + 1, forward=sg.Picard(max_steps=50))
    with pytest.raises(RuntimeError, match=CHANGED):
        value.sum().backward()


class Sigmoid(nn.Module):
    def forward(self, y):
        return y.sigmoid_()


@pytest.mark.parametrize(
    "last",
    [nn.ReLU(inplace=True), nn.BatchNorm1d(5), nn.Dropout(0.3, inplace=True), Sigmoid()],
    ids=lambda last: type(last).__name__,
)
def test_in_place_where_nothing_saved_is_changed(last):
    """What plain torch differentiates is no error: the gradient is that of the iteration unrolled."""
    net = nn.Sequential(nn.Linear(5, 5), last).double()
    x = torch.randn(6, 5, dtype=torch.float64)
    found = []
    for gradient in ("auto", "bptt"):
        torch.manual_seed(1)
        long = sg.Picard(max_steps=300, rtol=1e-13)
        value = sg.steady_state(lambda h: 0.2 * net(h) + x, torch.zeros_like(x), gradient=gradient, forward=long).value
        found.append(torch.autograd.grad(value.square().sum(), net[0].weight)[0])
    assert relative(*found) < 1e-8
