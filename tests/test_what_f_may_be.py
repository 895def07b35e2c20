"""What F may be: anything that maps a state to a state, whatever it is made of; and clear words where it does not."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import steadygrad as sg

IMPLICIT = ["auto", "rbp", "cg-rbp", "lsqr", "gmres", "bicgstab", "anderson", "neumann-rbp", "dense"]


@pytest.mark.parametrize("gradient", IMPLICIT)
def test_f_returns_a_parameter_itself(gradient):
    W = torch.randn(2, 3, requires_grad=True)
    sg.steady_state(lambda h: W, torch.zeros(2, 3), gradient=gradient).value.sum().backward()
    assert torch.allclose(W.grad, torch.ones(2, 3))


def test_part_of_f_is_a_parameter_itself():
    x = torch.randn(3, requires_grad=True)
    value = sg.steady_state(lambda h: (0.5 * h[0] + h[1], x), (torch.zeros(3), torch.zeros(3))).value
    value[0].sum().backward()
    assert torch.allclose(x.grad, torch.full((3,), 2.0), atol=1e-4)


def test_damped_constant_update_raises_no_alarm():
    W = torch.ones(5, requires_grad=True)
    sg.steady_state(lambda h: W * 2, torch.zeros(5), forward=sg.Picard(damping=0.5)).value.sum().backward()
    assert torch.allclose(W.grad, torch.full((5,), 2.0))


@pytest.mark.parametrize("order", [lambda a, b: a + b, lambda a, b: b + a])
def test_reentrant_checkpoint_before_f_is_no_business_of_ours(order):
    encoder = nn.Linear(3, 4)
    W = (torch.randn(4, 4) * 0.1).requires_grad_()
    x = checkpoint(encoder, torch.randn(2, 3, requires_grad=True), use_reentrant=True)
    sg.steady_state(lambda h: torch.tanh(order(h @ W, x)), torch.zeros(2, 4)).value.sum().backward()
    assert encoder.weight.grad.norm() > 0


def test_torch_func_inside_f():
    x = torch.randn(4, requires_grad=True)

    def energy(h, x):
        return (0.5 * h * h - 0.2 * torch.cos(h) - h * x).sum()

    value = sg.steady_state(lambda h: h - 0.5 * torch.func.grad(energy)(h, x), torch.zeros(4)).value
    (grad,) = torch.autograd.grad(value.sum(), x)
    assert torch.allclose(grad, 1 / (1 + 0.2 * torch.cos(value.detach())), rtol=1e-3)


def test_operation_whose_backward_has_no_graph():
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            return h / 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g / 2

    a = torch.ones(3, requires_grad=True)
    value = sg.steady_state(lambda h: Half.apply(h) + a, torch.zeros(3), gradient="cg-rbp").value
    with pytest.raises(sg.SteadyStateError, match=r"without a second derivative.*gmres"):
        value.sum().backward()


def test_cell_that_needs_a_state():
    W = torch.randn(3, 3)
    with pytest.raises(TypeError, match="initial=lambda"):
        sg.Equilibrium(lambda x, h: torch.tanh(h @ W + x))(torch.zeros(2, 3))


def test_order_of_keys_does_not_matter():
    a = torch.tensor(0.5, requires_grad=True)
    value = sg.steady_state(lambda s: {"b": s["a"] * a, "a": a * s["b"] + 1}, {"a": torch.zeros(2), "b": torch.zeros(2)}).value
    assert torch.allclose(value["a"], torch.full((2,), 4 / 3), atol=1e-4)
    assert torch.allclose(value["b"], torch.full((2,), 2 / 3), atol=1e-4)


def test_sparse_result():
    with pytest.raises(TypeError, match="to_dense"):
        sg.steady_state(lambda h: h.to_sparse(), torch.eye(3))


def test_named_tuples_among_args():
    import collections

    Arg = collections.namedtuple("Arg", "x s")
    W = 0.5 * torch.eye(3)
    arg = Arg(torch.randn(8, 3), torch.linspace(0, 1, 8).unsqueeze(1))
    assert sg.steady_state(lambda h, a: torch.tanh(a.s * (h @ W.T) + a.x), torch.zeros(8, 3), arg, batch_dims=1).converged.all()
