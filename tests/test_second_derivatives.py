"""Second derivatives are not provided, and asking for one must never give a wrong number."""

import pytest
import torch

import steadygrad as sg
from problems import tanh_problem

IMPLICIT = ["auto", "rbp", "cg-rbp", "neumann-rbp", "one-step", "dense"]
LOSSES = {"linear": lambda v: v.sum(), "quadratic": lambda v: v.square().sum()}
MATCH = "second derivative of a steady state"


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("gradient", IMPLICIT)
class TestRefused:
    def first(self, gradient, loss):
        F, W, x, h0 = tanh_problem()
        value = sg.steady_state(F, h0, gradient=gradient).value
        return W, x, torch.autograd.grad(loss(value), (W, x), create_graph=True)

    def test_grad_of_grad(self, gradient, loss):
        W, x, (dW, dx) = self.first(gradient, loss)
        for first in (dW, dx):
            for wrt in (W, x):
                with pytest.raises(sg.SteadyStateError, match=MATCH):
                    torch.autograd.grad(first.sum(), wrt, retain_graph=True)

    @pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
    def test_backward_with_create_graph(self, gradient, loss):
        F, W, x, h0 = tanh_problem()
        loss(sg.steady_state(F, h0, gradient=gradient).value).backward(create_graph=True)
        with pytest.raises(sg.SteadyStateError, match=MATCH):
            W.grad.sum().backward()
        W.grad = x.grad = None

    def test_first_derivative_with_create_graph_is_right(self, gradient, loss):
        _, _, (dW, _) = self.first(gradient, loss)
        F, W, x, h0 = tanh_problem()
        (plain,) = torch.autograd.grad(loss(sg.steady_state(F, h0, gradient=gradient).value), W)
        assert torch.equal(dW.detach(), plain)

    def test_hessian_through_torch(self, gradient, loss):
        _, W, x, h0 = tanh_problem(size=3, rows=1)
        with pytest.raises(sg.SteadyStateError, match=MATCH):
            torch.autograd.functional.hessian(
                lambda x: loss(sg.steady_state(lambda h: torch.tanh(h @ W.T + x), h0, gradient=gradient).value), x
            )


def test_mixed_derivative_through_the_cotangent():
    """A target that enters the loss only."""
    F, W, _, h0 = tanh_problem()
    target = torch.ones_like(h0).requires_grad_()
    value = sg.steady_state(F, h0).value
    (dW,) = torch.autograd.grad((value - target).square().sum(), W, create_graph=True)
    with pytest.raises(sg.SteadyStateError, match=MATCH):
        torch.autograd.grad(dW.sum(), target)


@pytest.mark.parametrize("gradient", ["bptt", sg.TBPTT(steps=50)], ids=repr)
def test_unrolled_gradients_have_them(gradient):
    _, W, x, h0 = tanh_problem(size=3, rows=1)

    def steady(x):
        return sg.steady_state(
            lambda h: torch.tanh(h @ W.T + x), h0, forward=sg.Picard(max_steps=50, rtol=0), gradient=gradient
        ).value

    assert torch.autograd.gradgradcheck(steady, (x,), atol=1e-5)
