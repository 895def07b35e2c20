"""Roots and minima: the same adjoint, the same certificate."""

import pytest
import torch

import steadygrad as sg
from problems import DenseMap, adjoint_of, matrix, relative

TIGHT_NEWTON = sg.Newton(rtol=1e-12, linear=sg.GMRES(rtol=1e-8))


def cubic(h, a):
    """A coupled system without a fixed-point form that converges."""
    return h**3 + 2 * h + 3 * torch.roll(h, 1, -1) - a


class TestRoot:
    @pytest.mark.parametrize("gradient", ["gmres", "auto", "cg-rbp", "lsqr", "bicgstab", "dense"])
    def test_root_and_gradient(self, gradient):
        a = torch.randn(5, dtype=torch.float64, requires_grad=True)
        solution = sg.root(cubic, torch.zeros(5).double(), a, forward=TIGHT_NEWTON, gradient=gradient)
        assert solution.converged
        assert cubic(solution.value, a).abs().max() < 1e-10
        (grad,) = torch.autograd.grad(solution.value.square().sum(), a)
        h = solution.value.detach()
        dg = torch.autograd.functional.jacobian(lambda h: cubic(h, a.detach()), h)
        assert relative(grad, torch.linalg.solve(dg.T, 2 * h)) < 1e-8
        assert solution.adjoint.converged

    def test_gradcheck_and_gradgradcheck(self):
        a = torch.randn(3, dtype=torch.float64, requires_grad=True)

        def solve(a):
            return sg.root(cubic, torch.zeros(3).double(), a, forward=TIGHT_NEWTON, derivatives=2).value

        assert torch.autograd.gradcheck(solve, (a,), atol=1e-6)
        assert torch.autograd.gradgradcheck(solve, (a,), atol=1e-5)

    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
    def test_the_units_of_g_do_not_matter(self, scale):
        a = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
        solution = sg.root(lambda h: scale * (h**2 - a), torch.ones(2).double())
        assert torch.allclose(solution.value, a.sqrt(), rtol=1e-8)
        solution.value.sum().backward()
        assert torch.allclose(a.grad, 0.5 / a.detach().sqrt(), rtol=1e-6)

    def test_batches(self):
        a = torch.tensor([[1.0], [100.0], [1e4]], dtype=torch.float64, requires_grad=True)
        solution = sg.root(lambda h, a: h**2 - a, torch.ones(3, 1).double(), a, batch_dims=1)
        assert solution.converged.all()
        assert torch.allclose(solution.value, a.sqrt(), rtol=1e-6)
        solution.value.sum().backward()
        assert torch.allclose(a.grad, 0.5 / a.detach().sqrt(), rtol=1e-5)

    def test_nested(self):
        a = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        value = sg.root(
            lambda s: {"u": s["u"] * s["v"] - a, "v": s["u"] - s["v"]},
            {"u": torch.ones(1).double(), "v": torch.ones(1).double()},
            forward=TIGHT_NEWTON,
        ).value
        assert value["u"].item() == pytest.approx(2**0.5)
        (grad,) = torch.autograd.grad(value["u"].sum(), a)
        assert grad.item() == pytest.approx(0.5 / 2**0.5)

    def test_singular_root_is_reported(self):
        """g = h² has a double root: its derivative vanishes there."""
        a = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        with pytest.warns(sg.SteadyStateWarning):
            solution = sg.root(lambda h: h**2 - a, torch.ones(1).double(), forward=sg.Newton(max_steps=60, rtol=1e-9))
            solution.value.sum().backward()

    def test_other_forward_solvers(self):
        a = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
        solution = sg.root(
            lambda h: h - torch.cos(a * h), torch.zeros(1).double(), forward=sg.Anderson(rtol=1e-10), gradient="auto"
        )
        assert solution.converged

    @pytest.mark.parametrize(
        ("call", "error", "match"),
        [
            (lambda: sg.root(lambda h: (h, h), torch.zeros(2)), TypeError, "as many equations as unknowns"),
            (lambda: sg.root(lambda h: h.sum(), torch.zeros(2)), ValueError, "as many equations as unknowns"),
            (lambda: sg.Newton(linear="gmres"), TypeError, "linear must be a solver"),
            (lambda: sg.minimum(lambda h: 3.0, torch.zeros(2)), TypeError, "energy must return a tensor"),
            (lambda: sg.steady_state(lambda h: h / 2, torch.ones(2), forward=sg.Minimise()), TypeError, "sg.minimum"),
            (
                lambda: sg.Implicit(sg.Newton()).adjoint.solve(DenseMap(matrix("random", 0.5)), torch.ones(1, 20).double()),
                TypeError,
                "forward solver",
            ),
        ],
    )
    def test_bad_input(self, call, error, match):
        with pytest.raises(error, match=match):
            call()


def well(h, x):
    """Convex, coupled, not quadratic."""
    return 0.5 * (h - x).square().sum(-1) + (h - torch.roll(h, 1, -1)).cosh().sum(-1)


class TestMinimum:
    @pytest.mark.parametrize("gradient", ["minres", "cg", "gmres", "auto", "dense"])
    def test_minimum_and_gradient(self, gradient):
        x = torch.randn(6, dtype=torch.float64, requires_grad=True)
        solution = sg.minimum(well, torch.zeros(6).double(), x, gradient=gradient, forward=sg.Minimise(rtol=1e-10))
        assert solution.converged
        h = solution.value.detach()
        H = torch.autograd.functional.hessian(lambda h: well(h, x.detach()), h)
        (grad,) = torch.autograd.grad(solution.value.square().sum(), x)
        assert relative(grad, torch.linalg.solve(H, 2 * h)) < 1e-7
        assert solution.adjoint.converged

    @pytest.mark.parametrize(
        "forward",
        [sg.Newton(rtol=1e-10), sg.Minimise(2000, 1e-8, optimiser=lambda p: torch.optim.Adam(p, lr=0.05))],
        ids=["newton", "adam"],
    )
    def test_other_ways_down(self, forward):
        x = torch.randn(6, dtype=torch.float64)
        best = sg.minimum(well, torch.zeros(6).double(), x, forward=sg.Minimise(rtol=1e-10)).value
        assert torch.allclose(sg.minimum(well, torch.zeros(6).double(), x, forward=forward).value, best, atol=1e-5)

    def test_gradgradcheck(self):
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)

        def solve(x):
            return sg.minimum(well, torch.zeros(3).double(), x, forward=sg.Newton(rtol=1e-13), derivatives=2).value

        assert torch.autograd.gradgradcheck(solve, (x,), atol=1e-4)

    def test_batches(self):
        x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
        solution = sg.minimum(well, torch.zeros(4, 6).double(), x, batch_dims=1, forward=sg.Newton(rtol=1e-10))
        assert solution.converged.all()
        (grad,) = torch.autograd.grad(solution.value.square().sum(), x)
        for i in range(4):
            alone = sg.minimum(well, torch.zeros(6).double(), x[i], forward=sg.Newton(rtol=1e-10))
            (expected,) = torch.autograd.grad(alone.value.square().sum(), x)
            assert relative(grad[i], expected[i]) < 1e-7

    @pytest.mark.parametrize("solver", [sg.CG(), sg.MINRES()], ids=repr)
    def test_symmetric_solvers(self, solver):
        for radius in (0.5, 0.9, 0.99):
            J = matrix("symmetric", radius)
            b = torch.randn(1, 20, dtype=torch.float64)
            operator = DenseMap(J)
            solved = solver.solve(operator, b)
            error = relative(solved.z, adjoint_of(J, b))
            assert solved.status == [sg.Status.CONVERGED]
            assert error < 1e-7
            assert operator.products < 60

    @pytest.mark.parametrize("rtol", [1e-3, 1e-4, 1e-6])
    @pytest.mark.parametrize("make", [sg.CG, sg.MINRES])
    def test_error_estimate(self, make, rtol):
        for radius in (0.5, 0.9, 0.99):
            J, b = matrix("symmetric", radius), torch.randn(1, 20, dtype=torch.float64)
            solved = make(rtol=rtol).solve(DenseMap(J), b)
            error = relative(solved.z, adjoint_of(J, b))
            assert error / 10 < solved.error[0] < 10 * error

    def test_minres_on_a_saddle(self):
        J = matrix("symmetric", 1.5)
        b = torch.randn(1, 20, dtype=torch.float64)
        solved = sg.MINRES().solve(DenseMap(J), b)
        assert solved.status == [sg.Status.CONVERGED]
        assert relative(solved.z, adjoint_of(J, b)) < 1e-6

    def test_constrained_quadratic_programme(self):
        """OptNet-like: min ½hᵀPh + qᵀh with Ah = b by its KKT equations, as a root."""
        P = torch.tensor([[4.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        A = torch.ones(1, 2, dtype=torch.float64)
        q = torch.tensor([1.0, 1.0], dtype=torch.float64, requires_grad=True)

        def kkt(s):
            return (P @ s[0] + q + A.T @ s[1], A @ s[0] - 1)

        h, _ = sg.root(kkt, (torch.zeros(2).double(), torch.zeros(1).double()), gradient="minres", forward=TIGHT_NEWTON).value
        assert torch.allclose(h, torch.tensor([0.25, 0.75]).double())
        (grad,) = torch.autograd.grad(h[0], q)
        K = torch.zeros(3, 3).double()
        K[:2, :2], K[2, :2], K[:2, 2] = P, A[0], A[0]
        assert torch.allclose(grad, -torch.linalg.inv(K)[0, :2])
