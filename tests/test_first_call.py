"""What the first call of F does not show: parameters and random draws behind a branch on h = 0."""

import pytest
import torch

import steadygrad as sg
from problems import relative
from steadygrad.state import Layout
from steadygrad.update import Update

torch.manual_seed(3)
W = (0.2 * torch.randn(4, 4, dtype=torch.float64)).requires_grad_()
x = torch.randn(4, dtype=torch.float64)
H = torch.zeros(4, dtype=torch.float64)


def branching(h):
    return x.clone() if h.abs().sum() == 0 else torch.tanh(W @ h + x)


def update_of(function, h=H):
    layout = Layout.of(h)
    return Update(function, (), layout), layout.flatten([h])


@pytest.mark.parametrize("gradient", ["auto", sg.Phantom(), sg.BPTT(memory="sqrt")])
def test_what_reaches_no_parameter_has_no_graph(gradient):
    solution = sg.steady_state(lambda h: 0.5 * h + x, H, gradient=gradient)
    assert solution.converged
    assert not solution.value.requires_grad


@pytest.mark.parametrize(("needed", "calls"), [(True, 1), (False, 1)])
def test_one_call_of_f_tells_whether_a_gradient_is_needed(needed, calls):
    """The linearisation, which an implicit gradient needs in any case."""
    count = []
    weight = W if needed else W.detach()
    solution = sg.steady_state(lambda h: (count.append(0), torch.tanh(weight @ h + x))[1], H)
    assert len(count) == solution.steps + calls
    assert solution.value.requires_grad is needed


@pytest.mark.parametrize("gradient", ["auto", "neumann-rbp", "phantom"])
def test_gradient_of_a_parameter_behind_a_branch(gradient):
    method = sg.Phantom(steps=60, damping=0.0) if gradient == "phantom" else gradient
    found = []
    for F in (branching, lambda h: torch.tanh(W @ h + x)):
        value = sg.steady_state(F, H, gradient=method, forward=sg.Picard(max_steps=200, rtol=1e-13)).value
        found.append(torch.autograd.grad(value.sum(), W)[0])
    assert relative(*found) < 1e-9


def test_draws_behind_a_branch_are_frozen_too():
    def dropped(h):
        return x.clone() if h.abs().sum() == 0 else torch.dropout(torch.tanh(W @ h + x), 0.5, True)

    update, start = update_of(dropped)
    with torch.no_grad():
        h = update(start)
        images = [update(h) for _ in range(6)]
        images += [update.layout.flatten(update.linearise(update.layout.split(h))).detach()]
    assert all(torch.equal(image, images[0]) for image in images)


def test_the_random_state_goes_on_as_after_one_call():
    def dropped(h):
        return torch.dropout(torch.tanh(W @ h + x), 0.5, True)

    torch.manual_seed(5)
    dropped(H)
    expected = torch.rand(3)
    torch.manual_seed(5)
    sg.steady_state(dropped, H).value.sum().backward()
    assert torch.equal(torch.rand(3), expected)
