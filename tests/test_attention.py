"""Attention inside F: torch's fused kernels have no second derivative, and nobody has to know."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import steadygrad as sg
from problems import relative
from steadygrad.state import Layout
from steadygrad.update import Update, nodes_behind
from steadygrad.update.jacobian import Jacobian

TOKENS, WIDTH = 3, 4
LONG = sg.Picard(max_steps=500, rtol=1e-13)


def attention():
    cell = nn.MultiheadAttention(WIDTH, 2, batch_first=True).double()
    return cell, lambda h, x: torch.tanh(cell(h, h, h, need_weights=False)[0] + x)


def encoder():
    cell = nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True).double()
    with torch.no_grad():
        for p in cell.parameters():
            p.mul_(0.6)
    return cell, lambda h, x: 0.5 * cell(h) + x


def plain(h, x):
    heads = h.unsqueeze(1)  # with three dimensions torch takes its plain kernel anyway
    return torch.tanh(functional.scaled_dot_product_attention(heads, heads, heads).squeeze(1) + x)


@pytest.fixture(params=[attention, encoder])
def case(request):
    torch.manual_seed(0)
    cell, F = request.param()
    x = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64)
    h = sg.steady_state(F, torch.zeros_like(x), x, gradient="bptt", forward=LONG).value.detach()
    parameter = next(p for name, p in cell.named_parameters() if name.endswith("in_proj_weight"))
    return F, x, h, parameter


def dense_of(F, x, h):
    return torch.autograd.functional.jacobian(lambda h: F(h, x), h).view(h.numel(), h.numel())


def test_the_fused_kernel_is_what_runs_without_us(case):
    F, x, h, _ = case
    leaf = h.clone().requires_grad_()
    (grad,) = torch.autograd.grad(F(leaf, x).sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        torch.autograd.grad(grad.sum(), leaf)


@pytest.mark.parametrize("twice", [True, False])
def test_products_with_j(case, twice):
    F, x, h, _ = case
    layout = Layout.of(h)
    jacobian = Jacobian(Update(lambda h: F(h, x), (), layout), layout.flatten([h]), twice=twice)
    J = dense_of(F, x, h)
    v = torch.randn(1, h.numel(), dtype=torch.float64)
    assert relative(jacobian.vjp(v), v @ J) < 1e-12
    assert relative(jacobian.jvp(v), v @ J.T) < 1e-12
    assert relative(jacobian.dense()[0], J) < 1e-12


def test_fused_kernels_stay_where_only_the_transpose_is_needed():
    h = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64)
    layout = Layout.of(h)
    update = Update(lambda h: plain(h, h), (), layout)
    names = []
    for twice in (False, True):
        (output,) = Jacobian(update, layout.flatten([h]), twice=twice).outputs
        names.append({node.name() for node in nodes_behind([output.grad_fn])})
    assert any("ScaledDotProduct" in name for name in names[0])
    assert not any("ScaledDotProduct" in name for name in names[1])


def test_an_f_that_has_changed_before_the_first_jvp_is_an_error():
    h = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64)
    layout, scale = Layout.of(h), [0.5]
    jacobian = Jacobian(Update(lambda h: plain(scale[0] * h, h), (), layout), layout.flatten([h]), twice=False)
    scale[0] = 0.6
    with pytest.raises(sg.SteadyStateError, match="gives another value at the same state"):
        jacobian.jvp(torch.ones(1, h.numel(), dtype=torch.float64))


@pytest.mark.parametrize("gradient", ["auto", "cg-rbp", "lsqr", "gmres", "rbp"])
@pytest.mark.parametrize("forward", [LONG, sg.Newton(max_steps=30, rtol=1e-12)], ids=repr)
def test_gradients(case, gradient, forward):
    F, x, h, parameter = case
    method = sg.Implicit(sg.Picard(max_steps=1000, rtol=1e-12)) if gradient == "rbp" else gradient
    value = sg.steady_state(F, h + 0.01, x, gradient=method, forward=forward).value
    (ours,) = torch.autograd.grad(value.square().sum(), parameter)
    J = dense_of(F, x, h)
    z = torch.linalg.solve(torch.eye(len(J)) - J.T, 2 * h.flatten())
    (theirs,) = torch.autograd.grad(F(h, x), parameter, z.view_as(h))
    assert relative(ours, theirs) < 1e-7


def test_second_derivatives(case):
    """Of a loss along a line in x, against central differences of the first."""
    F, x, h, _ = case
    direction = torch.randn_like(x)

    def first(t, create_graph=False):
        t = torch.tensor(t, dtype=torch.float64, requires_grad=True)
        value = sg.steady_state(lambda h: F(h, x + t * direction), h, derivatives=2, forward=LONG).value
        (grad,) = torch.autograd.grad(value.square().sum(), t, create_graph=True)
        return torch.autograd.grad(grad, t)[0] if create_graph else grad.detach()

    step = 1e-5
    assert relative(first(0.0, create_graph=True), (first(step) - first(-step)) / (2 * step)) < 1e-6
