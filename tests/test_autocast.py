"""F in half precision under autocast, the solver in float32."""

import pytest
import torch
from torch import nn

import steadygrad as sg
from problems import relative
from steadygrad.state import Layout, in_full_precision
from steadygrad.update import Update
from steadygrad.update.autocast import Autocast, without_autocast

BF16 = torch.bfloat16


@pytest.fixture
def net():
    net = nn.Linear(16, 16)
    with torch.no_grad():
        net.weight.mul_(0.4 / torch.linalg.matrix_norm(net.weight, 2))
    return net


def update_of(net, h):
    layout = Layout.of(h)
    return Update(lambda h: torch.tanh(net(h)), (), layout), layout.flatten([h])


def test_the_result_has_the_dtype_of_the_state(net):
    h = torch.randn(8, 16)
    with torch.autocast("cpu", dtype=BF16):
        assert torch.tanh(net(h)).dtype is BF16
        update, flat = update_of(net, h)
        image = update(flat)
        (leaf,) = update.linearise([h])
    assert image.dtype is leaf.dtype is torch.float32
    assert update.precision is BF16
    assert 0 < relative(leaf.detach(), torch.tanh(net(h)).detach()) < 1e-2


def test_without_autocast_another_dtype_is_an_error(net):
    with pytest.raises(TypeError, match=r"bfloat16 for a state of torch\.float32"):
        sg.steady_state(lambda h: torch.tanh(net(h)).to(BF16), torch.zeros(8, 16))


@pytest.mark.parametrize("began_under", [True, False])
def test_f_keeps_the_autocast_under_which_its_solve_began(net, began_under):
    """Backward passes run outside of the region, and may call F again."""
    h = torch.randn(8, 16)
    with torch.autocast("cpu", dtype=BF16, enabled=began_under):
        update, flat = update_of(net, h)
        first = update(flat)
    with torch.autocast("cpu", dtype=BF16, enabled=not began_under):
        assert torch.equal(update(flat), first)
        assert torch.equal(update.layout.flatten(update.linearise([h])), first)
    with without_autocast(h.device):
        assert torch.equal(update(flat), first)
        assert not torch.is_autocast_enabled("cpu")


def test_remembered_and_present():
    with torch.autocast("cpu", dtype=BF16):
        remembered = Autocast.now(torch.device("cpu"))
        assert remembered.is_on
        with torch.autocast("cpu", dtype=torch.float16):
            assert not remembered.is_on
    assert not remembered.is_on
    with remembered.again():
        assert remembered.is_on


def test_states_that_autocast_made_are_float32():
    half, full = torch.ones(3, dtype=BF16), torch.ones(3, dtype=torch.float64)
    assert in_full_precision((half, full))[0].dtype is BF16
    with torch.autocast("cpu", dtype=BF16):
        one, two = in_full_precision((half, full))
    assert (one.dtype, two.dtype) == (torch.float32, torch.float64)


HALF = sg.Picard(rtol=1e-2)
"""A tolerance that bfloat16 can meet."""


@pytest.mark.parametrize(
    ("gradient", "forward"),
    [
        ("neumann-rbp", HALF),
        ("anderson", HALF),
        ("bptt", HALF),
        ("neumann-rbp", sg.Picard()),
        ("auto", HALF),
        ("gmres", HALF),
    ],
    ids=repr,
)
def test_gradient_is_that_of_float32_to_half_precision(net, gradient, forward):
    x = torch.randn(8, 16)
    found = []
    for enabled in (True, False):
        with torch.autocast("cpu", dtype=BF16, enabled=enabled):
            solution = sg.steady_state(lambda h: torch.tanh(net(h) + x), torch.zeros(8, 16), gradient=gradient, forward=forward)
            loss = solution.value.square().sum()
        assert solution.value.dtype is torch.float32
        assert solution.converged
        found.append(torch.autograd.grad(loss, net.weight)[0])
    assert relative(*found) < 5e-2


@pytest.mark.parametrize("given", [True, False])
def test_layer(given):
    """cell(x, None) under autocast is bfloat16, and so is an h0 that came out of a layer before."""
    layer = sg.Equilibrium(nn.GRUCell(4, 8), gradient="neumann-rbp", forward=sg.Picard(max_steps=500, rtol=1e-2))
    with torch.autocast("cpu", dtype=BF16):
        value = layer(torch.randn(2, 4), torch.zeros(2, 8, dtype=BF16) if given else None)
        loss = value.sum()
    loss.backward()
    assert value.dtype is torch.float32
    assert layer.solution.converged
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
