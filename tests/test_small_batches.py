"""Batches too small for it to pay that ended problems are left out: they are frozen, and all is right the same."""

import pytest
import torch

import steadygrad as sg
from problems import relative
from test_batches import ragged
from test_coupled_batches import coupled, inputs

F64 = torch.float64


def test_they_stay_together():
    """To make F anew for those that are left takes longer than the few steps that they need."""
    Q, gain, x, h0 = ragged()
    sizes = set()

    def update(h, g, x):
        sizes.add(len(h))
        return torch.tanh(g * (h @ Q.T) + x)

    solution = sg.steady_state(update, h0, gain, x, batch_dims=1, forward=sg.Picard(3000, 1e-10))
    (grad,) = torch.autograd.grad(solution.value.square().sum(), Q)
    assert solution.converged.all()
    assert sizes == {4}
    alone = sg.steady_state(lambda h: update(h, gain, x), h0, forward=sg.Picard(3000, 1e-12), gradient="dense")
    assert relative(grad, torch.autograd.grad(alone.value.square().sum(), Q)[0]) < 1e-7


@pytest.mark.parametrize("gradient", ["auto", "rbp"])
@pytest.mark.parametrize("by_args", [True, False], ids=["args", "closure"])
@pytest.mark.parametrize("forward", [sg.Picard(500, 1e-9), sg.Anderson(500, 1e-9)], ids=repr)
def test_problems_that_turn_out_to_be_coupled_are_solved_together(forward, by_args, gradient):
    """Those that end first are kept as they were then, but F still sees them move on with the others."""
    W, X = inputs()
    F = coupled(W)
    h0 = torch.zeros(64, 5, dtype=F64)
    method = sg.Implicit(sg.Picard(1000, 1e-10)) if gradient == "rbp" else gradient
    solution = sg.steady_state(
        lambda h, X=X: F(h, X), h0, *([X] if by_args else []), batch_dims=1, forward=forward, gradient=method
    )
    whole = sg.steady_state(lambda h: F(h, X), h0, forward=sg.Picard(2000, 1e-12))
    assert relative(solution.value.detach(), whole.value.detach()) < 1e-8
    found, expected = (torch.autograd.grad(s.value.square().sum(), W)[0] for s in (solution, whole))
    assert relative(found, expected) < 1e-7
