"""Adjoint solves: converged means within one per cent, failure means failure, and what failed hands out nothing worse."""

import warnings

import pytest
import torch

import steadygrad as sg
from problems import FAMILIES, DenseMap, adjoint_of, matrix, relative
from steadygrad.linear.leaps import leapt
from steadygrad.linear.neumann import Sum

F64 = torch.float64


def rhs(size, rows=1, seed=7, dtype=F64):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class TestConvergedMeansOnePerCent:
    @pytest.mark.parametrize("solver", [sg.BiCGSTAB, sg.NormalCG, sg.LSQR, sg.GMRES, sg.Neumann, sg.Auto, sg.MINRES, sg.CG])
    @pytest.mark.parametrize("family", FAMILIES)
    def test_at_loose_tolerances(self, solver, family):
        for seed in range(12):
            J = matrix(family, 0.99, seed=seed, size=40)
            if solver in (sg.CG, sg.MINRES) and family != "symmetric":
                continue
            solved = solver(rtol=1e-2).solve(DenseMap(J), rhs(40, seed=seed))
            if solved.status == [sg.Status.CONVERGED]:
                assert solved.error[0] <= 1e-2

    @pytest.mark.parametrize("ridge", [1e-3, 0.1, 1.0])
    def test_the_bias_of_a_ridge_is_in_the_estimate(self, ridge):
        J, b = matrix("random", 0.9), rhs(20)
        solved = sg.NormalCG(ridge=ridge).solve(DenseMap(J), b)
        error = relative(solved.z, adjoint_of(J, b))
        assert error / 10 < solved.error[0] < 10 * error


class TestAutoRaisesNoFalseAlarm:
    @pytest.mark.parametrize("slope", [0.0, 0.03, 0.5, 0.999])
    def test_multiples_of_the_identity(self, slope):
        x = torch.randn(6, requires_grad=True)
        solution = sg.steady_state(lambda h: slope * h + x, torch.zeros(6), forward=sg.Picard(20_000), on_failure="raise")
        solution.value.square().sum().backward()
        assert solution.adjoint.converged

    def test_batches_of_saturated_problems(self):
        """Their J is nearly zero in most rows: the powers of it are dependent at once."""
        for seed in range(40):
            generator = torch.Generator().manual_seed(seed)
            W = torch.randn(8, 8, generator=generator) / 4
            x = (10 * torch.randn(16, 8, generator=generator)).requires_grad_()
            solution = sg.steady_state(
                lambda h, x, W=W: torch.tanh(h @ W.T + x), torch.zeros(16, 8), x, batch_dims=1, on_failure="raise"
            )
            solution.value.square().sum().backward()
            assert solution.adjoint.converged.all()

    @pytest.mark.parametrize("dear", [False, True])
    @pytest.mark.parametrize("size", [80, 90, 100])
    def test_a_multiple_of_an_orthogonal_matrix(self, size, dear):
        Q = torch.linalg.qr(rhs(size, size))[0]
        operator = DenseMap(1.5 * Q)
        b = rhs(size, seed=1)
        solved = sg.Auto(dear=dear).solve(operator, b)
        assert solved.status == [sg.Status.CONVERGED]
        assert relative(solved.z, adjoint_of(1.5 * Q, b)) < 1e-8
        assert operator.products < 300

    def test_products_that_round_by_more_than_z_tells(self):
        """Skewed coordinates of a condition of 300: large terms of Jᵀz cancel, and rounding keeps the residual above 1e-5.

        All are right; where by chance the estimate exceeds what rounding explains (one in thirty), it is said to stagnate.
        """
        alarms = 0
        for seed in range(60):
            generator = torch.Generator().manual_seed(seed)
            Q, R, turn = (torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=F64))[0] for _ in range(3))
            T = Q @ torch.diag(torch.logspace(0, -2.5, 4, dtype=F64)) @ R
            J = (T.inverse() @ (0.5 * turn) @ T).float()
            b = torch.randn(1, 4, generator=generator)
            solved = sg.Auto().solve(DenseMap(J), b)
            assert relative(solved.z.double(), adjoint_of(J.double(), b.double())) < 1e-3
            alarms += solved.status != [sg.Status.CONVERGED]
        assert alarms <= 4

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_an_eigenvalue_near_one(self, dtype):
        Q = torch.linalg.qr(rhs(60, 60))[0]
        values = torch.linspace(-0.5, 0.9, 60, dtype=F64)
        values[-1] = 0.999
        J = (Q @ torch.diag(values) @ Q.T).to(dtype)
        b = rhs(60, dtype=dtype)
        solved = sg.Auto(max_steps=2000).solve(DenseMap(J), b)
        assert solved.status == [sg.Status.CONVERGED]
        assert relative(solved.z.double(), adjoint_of(J.double(), b.double())) < (1e-2 if dtype is torch.float32 else 1e-6)


def test_a_series_leaps_ahead_by_dependent_terms():
    """Four terms of a state of two numbers: what tells them apart is rounding, of which nothing may be left at all."""
    J, v = rhs(4, rows=20_000).view(-1, 2, 2) / 2, rhs(2, rows=20_000, seed=8)
    b, z, seen = v, torch.zeros_like(v), []
    for _ in range(4):
        image = torch.einsum("nij,ni->nj", J, v)
        z, v, seen = z + v, image, [*seen, (v, image)]
    ahead, _ = leapt(Sum(z, v, tuple(seen)))
    exact = torch.linalg.solve(torch.eye(2, dtype=F64) - J.mT, b)
    assert ((ahead.z - exact).norm(dim=1) / exact.norm(dim=1)).median() < 1e-12


class TestWhatFailedHandsOutNothingWorse:
    """J with an eigenvalue so near to 1 that the solve cannot be trusted: its z may be a hundred times too long."""

    def problem(self):
        Q = torch.linalg.qr(rhs(30, 30, dtype=torch.float32))[0]
        values = torch.linspace(-0.6, 0.8, 30)
        values[-1] = 1 - 1e-8
        W = (Q @ torch.diag(values) @ Q.T).requires_grad_()
        return W, rhs(30, dtype=torch.float32)[0]

    def gradient(self, **options):
        W, b = self.problem()
        c = torch.zeros(30, requires_grad=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            solution = sg.steady_state(lambda h: W @ h + c, torch.zeros(30), forward=sg.Picard(1, 0), **options)
            (z,) = torch.autograd.grad(solution.value @ b, c)
        return solution.adjoint, z, b, W.detach(), [str(w.message) for w in caught]

    def test_auto(self):
        adjoint, z, b, _, messages = self.gradient()
        assert not adjoint.converged
        assert len(messages) == 1
        assert z.norm() < 20 * b.norm()

    @pytest.mark.parametrize("gradient", ["gmres", "lsqr", "auto", sg.Implicit(sg.BiCGSTAB(max_steps=5))], ids=str)
    def test_fallback_is_the_best_truncated_series_and_says_so(self, gradient):
        adjoint, z, b, W, messages = self.gradient(gradient=gradient, on_failure="fallback")
        assert not adjoint.converged
        assert any("truncated Neumann series" in message for message in messages)
        v, sums = b, [torch.zeros_like(b)]
        for _ in range(20):
            sums.append(sums[-1] + v)
            v = W.T @ v
        assert min(relative(z, s) for s in sums[1:]) < 1e-4

    def test_fallback_changes_nothing_where_the_solve_succeeds(self):
        x = torch.randn(5, dtype=F64, requires_grad=True)
        found = [
            torch.autograd.grad(sg.steady_state(lambda h: 0.5 * h + x, torch.zeros(5, dtype=F64), on_failure=p).value.sum(), x)[0]
            for p in ("raise", "fallback")
        ]
        assert torch.equal(*found)

    def test_only_the_problems_that_failed(self):
        slope = torch.tensor([[0.5], [1 - 1e-9], [0.2]])
        w = torch.ones(3, 2, requires_grad=True)
        with pytest.warns(sg.SteadyStateWarning, match="1 of 3 problems.*truncated Neumann series"):
            solution = sg.steady_state(
                lambda h, s, w: s * h + w,
                torch.zeros(3, 2),
                slope,
                w,
                batch_dims=1,
                forward=sg.Picard(1, 0),
                on_failure="fallback",
            )
            solution.value.sum().backward()
        assert torch.allclose(w.grad[[0, 2]], (1 / (1 - slope[[0, 2]])).expand(2, 2), rtol=1e-4)
        assert w.grad[1].abs().max() <= 20.5


class TestHalfPrecision:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize(
        "gradient", ["auto", "neumann-rbp", "gmres", "cg-rbp", "lsqr", "bicgstab", "anderson", "rbp", "dense"]
    )
    def test_state_and_gradient_without_an_alarm(self, gradient, dtype):
        generator = torch.Generator().manual_seed(0)
        W = torch.randn(12, 12, generator=generator)
        W = 0.6 * W / torch.linalg.matrix_norm(W, 2)
        x = torch.randn(4, 12, generator=generator)
        found = []
        for kind in (dtype, F64):
            weight, inputs = W.to(kind).requires_grad_(), x.to(kind)
            solution = sg.steady_state(
                lambda h, w=weight, x=inputs: torch.tanh(h @ w.T + x),
                torch.zeros(4, 12, dtype=kind),
                gradient=gradient,
                on_failure="raise",
            )
            assert solution.value.dtype is kind
            found.append(torch.autograd.grad(solution.value.square().sum(), weight)[0].double())
        assert relative(*found) < (0.05 if dtype is torch.bfloat16 else 0.02)

    def test_warm_start_with_scaled_losses(self):
        """A gradient scaler multiplies float16 losses by thousands: squares of such cotangents leave its range."""
        w = torch.full((4,), 0.5, dtype=torch.float16, requires_grad=True)

        def update(h):
            return w * h + 1

        warm = None
        for _ in range(3):
            warm = sg.steady_state(update, torch.zeros(4, dtype=torch.float16), warm=warm, on_failure="raise")
            (grad,) = torch.autograd.grad((warm.value.float() * 2.0**10).sum(), w)
            assert grad.isfinite().all()
            assert torch.allclose(grad.float() / 2**10, torch.full((4,), 4.0), rtol=0.02)

    @pytest.mark.parametrize("forward", [sg.Picard(), sg.Anderson(), sg.Broyden()], ids=repr)
    def test_every_forward_solver(self, forward):
        x = torch.randn(3, 5, dtype=torch.bfloat16)
        solution = sg.steady_state(
            lambda h: 0.5 * torch.tanh(h) + x, torch.zeros(3, 5, dtype=torch.bfloat16), forward=forward, on_failure="raise"
        )
        assert solution.converged
