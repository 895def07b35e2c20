"""What a hunt for wrong gradients, false alarms and unclear errors found: each stays found."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.utils.checkpoint import checkpoint

import steadygrad as sg
from problems import DenseMap, adjoint_of, matrix, relative
from steadygrad.linear import Recurrence

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


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_is_refused():
    x = torch.ones(1)
    with forward_ad.dual_level(), pytest.raises(sg.SteadyStateError, match="forward-mode"):
        sg.steady_state(lambda h: 0.5 * h + forward_ad.make_dual(x, torch.ones(1)), torch.zeros(1))


@pytest.mark.parametrize("scale", [1e-30, 1e-24, 1e-21, 1e-8, 1.0, 1e19, 1e30])
@pytest.mark.parametrize("gradient", IMPLICIT)
def test_cotangents_of_any_size(gradient, scale):
    D = torch.tensor([0.5, 0.1, 0.3, 0.4, 0.2])
    x = torch.randn(5, requires_grad=True)
    solution = sg.steady_state(lambda h: D * h + x, torch.zeros(5), gradient=gradient)
    (solution.value * scale).sum().backward()
    assert torch.allclose(x.grad / scale, 1 / (1 - D), rtol=1e-4)
    assert solution.adjoint.residual < 1e-4


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


def test_leaving_an_unstable_point_is_no_divergence():
    W = torch.tensor(3.0, requires_grad=True)
    solution = sg.steady_state(lambda h: torch.tanh(W * h + 1e-6), torch.zeros(1))
    assert solution.converged
    assert solution.value.item() == pytest.approx(0.9949, abs=1e-3)


def test_rbp_at_its_rounding_floor_raises_no_alarm():
    c = torch.zeros(1, requires_grad=True)
    solution = sg.steady_state(lambda h: 0.9 * h + c, torch.zeros(1), gradient=sg.Implicit(sg.Picard(500, 1e-6)))
    solution.value.sum().backward()
    assert solution.adjoint.converged


@pytest.mark.parametrize("damping", [0.5, 0.9, 0.95])
def test_error_estimate_of_damped_rbp(damping):
    J = matrix("random", 0.5)
    b = torch.randn(1, 20, dtype=torch.float64)
    solved = Recurrence(sg.Picard(5000, 1e-5, damping=damping)).solve(DenseMap(J), b)
    error = relative(solved.z, adjoint_of(J, b))
    assert error / 10 < solved.error.values()[0] < 10 * error


def test_error_estimate_of_a_cyclic_shift():
    """Five modes of the same modulus."""
    J = 0.99 * torch.roll(torch.eye(5, dtype=torch.float64), 1, 0)
    b = torch.eye(5, dtype=torch.float64)[:1]
    for solver in (sg.Neumann(steps=100), sg.Neumann(rtol=1e-3, max_steps=2000)):
        solved = solver.solve(DenseMap(J), b)
        error = relative(solved.z, adjoint_of(J, b))
        assert error / 10 < solved.error.values()[0] < 10 * error


def test_error_estimate_of_the_best_iterate_of_a_failed_solve():
    J = matrix("random", 0.9, size=10, seed=1)
    b = torch.eye(10, dtype=torch.float64)[:1]
    for steps in (10, 11, 15, 16):
        solved = sg.Neumann(max_steps=steps).solve(DenseMap(J), b)
        error = relative(solved.z, adjoint_of(J, b))
        assert error / 10 < solved.error.values()[0] < 10 * error


def test_cg_count_beyond_exact_convergence():
    W = torch.randn(5, requires_grad=True)
    for solver in (sg.NormalCG(steps=5), sg.LSQR(steps=5), sg.BiCGSTAB(steps=5), sg.GMRES(steps=5)):
        value = sg.steady_state(lambda h: 0.5 * h + W, torch.zeros(5), gradient=sg.Implicit(solver)).value
        (grad,) = torch.autograd.grad(value.sum(), W)
        assert torch.allclose(grad, torch.full((5,), 2.0))


def test_ridge_on_a_nearly_singular_system_is_finite_and_honest():
    D = torch.tensor([0.5, 0.1, 0.9999999], dtype=torch.float64)
    b = torch.ones(1, 3, dtype=torch.float64)
    solved = sg.NormalCG(ridge=1e-3).solve(DenseMap(torch.diag(D)), b)
    assert solved.z.isfinite().all()
    assert solved.status[0] is not sg.Status.NONFINITE
    assert solved.residual[0] > 0.1  # the bias shows


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap, torch.func.jacrev])
def test_torch_func_around_is_refused(transform):
    with pytest.raises(sg.SteadyStateError, match=r"inside torch\.func"):
        transform(lambda x: sg.steady_state(lambda h: 0.5 * h + x, torch.zeros(())).value)(
            torch.ones(()) if transform is not torch.func.vmap else torch.ones(3)
        )


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
