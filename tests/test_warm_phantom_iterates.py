"""Warm starts, the phantom gradient, and losses on the way."""

import pytest
import torch

import steadygrad as sg
from problems import relative, tanh_problem

TIGHT = sg.Picard(3000, 1e-12)


class TestWarm:
    @pytest.mark.parametrize("gradient", ["auto", "rbp", "cg-rbp", "lsqr", "gmres", "bicgstab", "anderson"])
    def test_starts_state_and_adjoint(self, gradient):
        F, W, _, h0 = tanh_problem(gain=1.1)
        cold = sg.steady_state(F, h0, gradient=gradient)
        (expected,) = torch.autograd.grad(cold.value.square().sum(), W)
        warm = sg.steady_state(F, h0, gradient=gradient, warm=cold)
        (grad,) = torch.autograd.grad(warm.value.square().sum(), W)
        assert warm.steps <= 2 < cold.steps
        assert warm.adjoint.products < cold.adjoint.products
        assert relative(grad, expected) < 1e-3

    def test_cold_when_shapes_differ(self):
        F, W, _, h0 = tanh_problem()
        other = sg.steady_state(*tanh_problem(size=5)[::3])
        other.value.sum().backward()
        cold, warm = sg.steady_state(F, h0), sg.steady_state(F, h0, warm=other)
        assert torch.equal(cold.value, warm.value)
        warm.value.sum().backward()
        assert warm.adjoint.converged

    def test_cold_when_structures_differ_or_not_finite(self):
        F, W, _, h0 = tanh_problem()
        nested = sg.steady_state(lambda s: (F(s[0]),), (h0,))
        assert sg.steady_state(F, h0, warm=nested).steps == sg.steady_state(F, h0).steps
        broken = sg.steady_state(lambda h: h * float("nan"), h0, on_failure="ignore")
        assert sg.steady_state(F, h0, warm=broken).converged

    def test_a_solution_of_another_problem_of_the_same_shape_is_only_a_start(self):
        F, W, _, h0 = tanh_problem()
        G, V, _, _ = tanh_problem(seed=9)
        other = sg.steady_state(G, h0)
        other.value.sum().backward()
        warm = sg.steady_state(F, h0, warm=other, forward=TIGHT)
        cold = sg.steady_state(F, h0, forward=TIGHT)
        assert relative(*(torch.autograd.grad(s.value.sum(), W)[0] for s in (warm, cold))) < 1e-8

    def test_an_exact_count_stays_the_papers_method(self):
        F, W, _, h0 = tanh_problem()
        cold = sg.steady_state(F, h0, forward=TIGHT, gradient="neumann-rbp")
        (expected,) = torch.autograd.grad(cold.value.sum(), W)
        warm = sg.steady_state(F, h0, forward=TIGHT, gradient="neumann-rbp", warm=cold)
        (grad,) = torch.autograd.grad(warm.value.sum(), W)
        assert relative(grad, expected) < 1e-10

    def test_full_batch_training_takes_a_fraction_of_the_work(self):
        work = {}
        for warm in (False, True):
            torch.manual_seed(0)
            layer = sg.Equilibrium(torch.nn.GRUCell(3, 8), warm_start=warm, forward=sg.Picard(1000))
            optimiser = torch.optim.SGD(layer.parameters(), lr=0.01)
            x, y = torch.randn(16, 3), torch.randn(16, 8)
            work[warm] = 0
            for _ in range(20):
                optimiser.zero_grad()
                (layer(x) - y).square().mean().backward()
                optimiser.step()
                work[warm] += layer.solution.steps + layer.solution.adjoint.products
        assert work[True] < 0.6 * work[False]


class TestPhantom:
    @pytest.mark.parametrize(("steps", "damping"), [(1, 0.0), (5, 0.5), (4, 0.2)])
    def test_is_the_damped_unrolling_at_the_steady_state(self, steps, damping):
        F, W, _, h0 = tanh_problem()
        solution = sg.steady_state(F, h0, forward=TIGHT, gradient=sg.Phantom(steps, damping))
        h = solution.value.detach()
        for _ in range(steps):
            h = (1 - damping) * F(h) + damping * h
        ours, theirs = (torch.autograd.grad(v.square().sum(), W)[0] for v in (solution.value, h))
        assert relative(ours, theirs) < 1e-9
        assert torch.equal(solution.value, sg.steady_state(F, h0, forward=TIGHT).value)

    def test_undamped_is_the_neumann_series(self):
        F, W, _, h0 = tanh_problem()
        found = [
            torch.autograd.grad(sg.steady_state(F, h0, forward=TIGHT, gradient=g).value.sum(), W)[0]
            for g in (sg.Phantom(6, 0.0), sg.Implicit(sg.Neumann(steps=5)))
        ]
        assert relative(*found) < 1e-9

    def test_many_steps_are_exact(self):
        F, W, _, h0 = tanh_problem()
        found = [
            torch.autograd.grad(sg.steady_state(F, h0, forward=TIGHT, gradient=g).value.sum(), W)[0]
            for g in (sg.Phantom(200, 0.3), "dense")
        ]
        assert relative(*found) < 1e-8

    def test_bad_settings(self):
        with pytest.raises(ValueError, match="damping must be"):
            sg.Phantom(damping=1.0)
        with pytest.raises(ValueError, match="steps must be at least 1"):
            sg.Phantom(steps=0)


class TestIterates:
    @pytest.mark.parametrize("gradient", ["auto", "phantom", "bptt"])
    def test_values(self, gradient):
        F, _, _, h = tanh_problem()
        solution = sg.steady_state(F, h, iterates=(1, 4, 10_000), gradient=gradient)
        with torch.no_grad():
            for step in range(1, 5):
                h = F(h)
                if step in solution.iterates:
                    assert torch.equal(solution.iterates[step], h)
        assert sorted(solution.iterates) == [1, 4]

    def test_bptt_gradient_is_that_of_the_steps(self):
        F, W, _, h0 = tanh_problem()
        solution = sg.steady_state(F, h0, iterates=[3], gradient="bptt")
        assert relative(*(torch.autograd.grad(v.sum(), W)[0] for v in (solution.iterates[3], F(F(F(h0)))))) < 1e-12

    def test_implicit_gradient_is_that_of_a_steady_state_there(self):
        F, W, _, h0 = tanh_problem()
        solution = sg.steady_state(F, h0, iterates=[3], gradient="dense")
        there = sg.steady_state(F, solution.iterates[3].detach(), forward=sg.Picard(1, 0), gradient="dense")
        h3 = solution.iterates[3].detach()
        J = torch.autograd.functional.jacobian(F, h3).reshape(36, 36)
        z = torch.linalg.solve(torch.eye(36).double() - J.T, torch.ones(36).double()).view(3, 12)
        (expected,) = torch.autograd.grad((F(h3) * z).sum(), W)
        assert relative(torch.autograd.grad(solution.iterates[3].sum(), W)[0], expected) < 1e-9
        assert there.steps == 1

    def test_a_loss_on_the_way_and_at_the_end(self):
        F, W, _, h0 = tanh_problem()
        solution = sg.steady_state(F, h0, iterates=(2, 5))
        loss = solution.value.sum() + 0.1 * sum(h.sum() for h in solution.iterates.values())
        loss.backward()
        assert W.grad.isfinite().all()
        assert solution.adjoint.converged


class TestForwardSolvers:
    @pytest.mark.parametrize("forward", [sg.Anderson(), sg.Broyden()], ids=repr)
    def test_finds_what_picard_cannot(self, forward):
        """ρ(J) = 1.5: the plain iteration diverges."""
        Q = torch.linalg.qr(torch.randn(20, 20, dtype=torch.float64))[0]
        x = torch.randn(20, dtype=torch.float64, requires_grad=True)
        solution = sg.steady_state(
            lambda h: 1.5 * torch.sin(h @ Q.T) + x, torch.zeros(20).double(), forward=type(forward)(500, 1e-10, history=30)
        )
        assert solution.converged
        residual = 1.5 * torch.sin(solution.value @ Q.T) + x - solution.value
        assert residual.norm() < 1e-8
        solution.value.sum().backward()
        assert solution.adjoint.converged

    @pytest.mark.parametrize("forward", [sg.Anderson, sg.Broyden])
    def test_faster_than_picard(self, forward):
        F, _, _, h0 = tanh_problem(size=20, gain=1.4, seed=2)
        assert (
            sg.steady_state(F, h0, forward=forward(500, 1e-9)).steps < sg.steady_state(F, h0, forward=sg.Picard(5000, 1e-9)).steps
        )

    @pytest.mark.parametrize("forward", [sg.Anderson, sg.Broyden])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_agrees_with_picard(self, forward, dtype):
        F, W, _, h0 = tanh_problem(dtype=dtype)
        ours, plain = sg.steady_state(F, h0, forward=forward()), sg.steady_state(F, h0)
        assert torch.allclose(ours.value, plain.value, atol=1e-4)
        assert relative(*(torch.autograd.grad(s.value.sum(), W)[0] for s in (ours, plain))) < 1e-3

    def test_bad_settings(self):
        with pytest.raises(ValueError, match="history must be at least 1"):
            sg.Anderson(history=0)
        with pytest.raises(ValueError, match="mixing must be"):
            sg.Anderson(mixing=0.0)
        with pytest.raises(ValueError, match="restart must be at least 1"):
            sg.GMRES(restart=0)
