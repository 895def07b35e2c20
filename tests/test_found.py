"""What a hunt for wrong gradients, false alarms and unclear errors found: each stays found."""

import pytest
import torch
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
    assert error / 10 < solved.error[0] < 10 * error


def test_error_estimate_of_a_cyclic_shift():
    """Five modes of the same modulus."""
    J = 0.99 * torch.roll(torch.eye(5, dtype=torch.float64), 1, 0)
    b = torch.eye(5, dtype=torch.float64)[:1]
    for solver in (sg.Neumann(steps=100), sg.Neumann(rtol=1e-3, max_steps=2000)):
        solved = solver.solve(DenseMap(J), b)
        error = relative(solved.z, adjoint_of(J, b))
        assert error / 10 < solved.error[0] < 10 * error


def test_error_estimate_of_the_best_iterate_of_a_failed_solve():
    J = matrix("random", 0.9, size=10, seed=1)
    b = torch.eye(10, dtype=torch.float64)[:1]
    for steps in (10, 11, 15, 16):
        solved = sg.Neumann(max_steps=steps).solve(DenseMap(J), b)
        error = relative(solved.z, adjoint_of(J, b))
        assert error / 10 < solved.error[0] < 10 * error


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


class TestSecondHunt:
    """Batches, roots, minima, warm starts."""

    @pytest.mark.parametrize(
        "g",
        [lambda h, a: h**2 - a, lambda h, a: h**2 + 1 + 0 * a, lambda h, a: h**3 + h - a * float("nan")],
        ids=["flat start", "no root", "nan"],
    )
    def test_what_is_no_root_is_not_converged(self, g):
        a = torch.full((2,), 2.0, dtype=torch.float64, requires_grad=True)
        solution = sg.root(g, torch.zeros(2).double(), a, on_failure="ignore")
        assert not solution.converged

    def test_nan_row_of_a_root(self):
        x = torch.tensor([[1.0], [2.0], [float("nan")]], dtype=torch.float64, requires_grad=True)
        solution = sg.root(lambda h, x: h**3 + h - x, torch.zeros(3, 1).double(), x, batch_dims=1, on_failure="ignore")
        assert solution.converged.tolist() == [True, True, False]

    @pytest.mark.parametrize(
        ("energy", "make"),
        [
            (lambda h, x: nn.functional.huber_loss(h, x, reduction="sum"), lambda p: torch.optim.SGD(p, lr=1e-3)),
            (lambda h, x: (h * (x * 0 + 1)).sum(), None),
            (lambda h, x: ((h - x) ** 2).sum() + (h - x).abs().pow(3).sum(), lambda p: torch.optim.SGD(p, lr=1e-9)),
        ],
        ids=["flat", "unbounded", "no step"],
    )
    def test_what_is_no_minimum_is_not_converged(self, energy, make):
        x = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
        forward = sg.Minimise(max_steps=3) if make is None else sg.Minimise(max_steps=3, optimiser=make, every=1)
        solution = sg.minimum(energy, torch.full((2,), 10.0).double(), x, forward=forward, on_failure="ignore")
        assert not solution.converged or (solution.value - x).abs().max() < 1e-5

    def test_ill_conditioned_energy(self):
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        weights = torch.tensor([1.0, 1e6], dtype=torch.float64)
        solution = sg.minimum(lambda h: ((h - x) ** 2 * weights).sum(), torch.zeros(2).double())
        assert solution.converged
        assert (solution.value - 1).abs().max() < 1e-6

    def test_minima_of_a_batch_are_separate(self):
        k = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64, requires_grad=True)
        solution = sg.minimum(lambda h, k: (k * h**2 - h).sum(1), torch.zeros(3, 1).double(), k, batch_dims=1)
        assert torch.allclose(solution.value, 0.5 / k)
        with pytest.raises(ValueError, match="couple the problems"):
            sg.minimum(lambda h, k: (k * h**2 - h).sum(1), torch.zeros(3, 1).double(), k, batch_dims=1, forward=sg.Minimise())

    def test_warm_start_minds_keys_not_their_order(self):
        start = {"a": torch.ones(1), "b": -torch.ones(1)}
        first = sg.steady_state(lambda h: {key: torch.tanh(2 * value) for key, value in h.items()}, start)
        other = {"b": start["b"], "a": start["a"]}
        second = sg.steady_state(lambda h: {key: torch.tanh(2 * value) for key, value in h.items()}, other, warm=first)
        assert torch.allclose(second.value["a"], first.value["a"])

    @pytest.mark.parametrize("c", [0.5, 0.9, -2.0])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_auto_on_a_degenerate_krylov_space(self, c, dtype):
        x = torch.arange(1.0, 13.0, dtype=dtype).requires_grad_()
        solution = sg.steady_state(lambda h: c * h + x, torch.zeros(12, dtype=dtype), forward=sg.Anderson(300))
        (solution.value * x.detach()).sum().backward()
        assert solution.adjoint.converged
        assert torch.allclose(x.grad, x.detach() / (1 - c), rtol=1e-4)

    def test_auto_on_a_matrix_of_rank_one(self):
        u = torch.rand(12, dtype=torch.float64)
        u = u / u.sum()
        x = torch.ones(12, dtype=torch.float64, requires_grad=True)
        solution = sg.steady_state(
            lambda h: 0.8 * (h @ u) * torch.ones(12).double() + x, torch.zeros(12).double(), forward=sg.Picard(500, 1e-12)
        )
        solution.value.sum().backward()
        assert torch.allclose(x.grad, 1 + 12 * 0.8 * u / 0.2)

    @pytest.mark.parametrize("scale", [1e-3, 1e-9, -3e-9, 1e9])
    @pytest.mark.parametrize("gradient", ["auto", "gmres", "bicgstab", "lsqr", "cg-rbp"])
    def test_warm_adjoint_of_another_scale(self, gradient, scale):
        W = (0.5 * torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64))[0]).requires_grad_()
        options = {"h0": torch.zeros(12).double(), "gradient": gradient, "forward": sg.Picard(500, 1e-12)}
        cold = sg.steady_state(lambda h: torch.tanh(W @ h + 1), **options)
        (expected,) = torch.autograd.grad(cold.value.sum(), W)
        warm = sg.steady_state(lambda h: torch.tanh(W @ h + 1), warm=cold, **options)
        (grad,) = torch.autograd.grad(scale * warm.value.sum(), W)
        assert warm.adjoint.converged
        assert relative(grad / scale, expected) < 1e-7

    @pytest.mark.parametrize(
        "options", [{"forward": sg.Picard(25, rtol=0)}, {"derivatives": 2}, {"gradient": "phantom"}], ids=str
    )
    def test_nan_row_with_args(self, options):
        W = (0.5 * torch.eye(3, dtype=torch.float64)).requires_grad_()
        x = torch.randn(4, 3, dtype=torch.float64)
        x[1] = float("nan")
        solution = sg.steady_state(
            lambda h, x: torch.tanh(h @ W.T + x), torch.zeros(4, 3).double(), x, batch_dims=1, on_failure="ignore", **options
        )
        good = [0, 2, 3]
        (grad,) = torch.autograd.grad(solution.value[good].sum(), W)
        plain = sg.steady_state(
            lambda h, x: torch.tanh(h @ W.T + x), torch.zeros(3, 3).double(), x[good], batch_dims=1, **options
        )
        assert relative(grad, torch.autograd.grad(plain.value.sum(), W)[0]) < 1e-4

    def test_auto_with_a_nan_row_in_a_long_solve(self):
        W = (0.99 * torch.linalg.qr(torch.randn(80, 80, dtype=torch.float64))[0]).requires_grad_()
        x = 0.01 * torch.randn(3, 80, dtype=torch.float64)
        x[1] = float("nan")
        solution = sg.steady_state(
            lambda h: h @ W.T + x, torch.zeros(3, 80).double(), batch_dims=1, on_failure="ignore", forward=sg.Picard(3, 0)
        )
        solution.value[[0, 2]].sum().backward()

    def test_named_tuples_among_args(self):
        import collections

        Arg = collections.namedtuple("Arg", "x s")
        W = 0.5 * torch.eye(3)
        arg = Arg(torch.randn(8, 3), torch.linspace(0, 1, 8).unsqueeze(1))
        assert sg.steady_state(
            lambda h, a: torch.tanh(a.s * (h @ W.T) + a.x), torch.zeros(8, 3), arg, batch_dims=1
        ).converged.all()
