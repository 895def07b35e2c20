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
    return Update(function, (), layout, probe=True), layout.flatten([h])


def test_looking_again_finds_parameters():
    update, start = update_of(branching)
    with torch.no_grad():
        h = update(start)
        assert not update.requires_grad
        assert update.look_again(h)
    assert update.requires_grad


def test_looking_again_calls_f_only_where_nothing_was_seen():
    calls = []
    update, start = update_of(lambda h: (calls.append(0), torch.tanh(W @ h + x))[1])
    with torch.no_grad():
        update(start)
        assert update.requires_grad
        assert update.look_again(start)
    assert len(calls) == 1


def test_nothing_is_looked_for_without_gradients():
    layout = Layout.of(H)
    update = Update(branching, (), layout, probe=False)
    h = update(layout.flatten([H]))
    assert not update.look_again(h + 1)


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
