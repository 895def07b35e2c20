"""The certificate covers the state: a small step is not a small distance."""

import math

import pytest
import torch

import steadygrad as sg
from problems import FAMILIES, Affine, relative, tanh_problem

F64 = torch.float64


def creeping(x):
    """h³ = x, by steps of a millionth of the way."""
    return lambda h: h + 1e-6 * (x - h**3)


class TestSlowMaps:
    def test_a_slow_map_is_not_converged(self):
        x = torch.ones(1, dtype=F64, requires_grad=True)
        with pytest.warns(sg.SteadyStateWarning, match=r"MAX_STEPS.*distance from the steady state about 1e[+-]"):
            solution = sg.steady_state(creeping(x), torch.full((1,), 0.5, dtype=F64))
        assert not solution.converged
        assert solution.steps == 100
        assert 0.3 < solution.error_estimate < 3  # 0.5 of 1 is left; to first order x − h³ over 3h² is more

    def test_the_change_that_is_still_to_come_is_on_the_certificate(self):
        x = torch.ones(1, dtype=F64, requires_grad=True)
        solution = sg.steady_state(creeping(x), torch.full((1,), 0.5, dtype=F64), on_failure="ignore")
        loss = solution.value.square().sum()
        loss.backward()
        h = solution.value.item()
        assert solution.adjoint.remaining == pytest.approx(2 * h * (1 - h**3) / (3 * h**2), rel=1e-6)

    def test_the_change_where_converged_is_true_to_first_order(self):
        problem = Affine.of("random", 0.9)
        b = torch.randn(20, dtype=F64)
        solution = sg.steady_state(problem, torch.zeros(20, dtype=F64), forward=sg.Picard(1000, 1e-4))
        loss = solution.value @ b
        torch.autograd.grad(loss, problem.c)
        assert solution.adjoint.remaining == pytest.approx((problem.steady() @ b - loss.detach()).item(), rel=1e-6)

    def test_a_map_that_forgets_slowly_goes_on_until_it_is_near(self):
        solution = sg.steady_state(lambda h: 0.999 * h + 1e-3, torch.zeros(1, dtype=F64), forward=sg.Picard(20_000))
        assert solution.converged
        error = abs(solution.value.item() - 1)
        assert error < 0.02
        assert error / 2 < solution.error_estimate < 2 * error

    def test_soft_value_iteration(self):
        """γ = 0.999: the values come in the end, and before that the distance is told."""
        generator = torch.Generator().manual_seed(0)
        P = torch.softmax(torch.randn(4, 10, 10, generator=generator, dtype=F64), dim=-1)
        reward = torch.rand(4, 10, generator=generator, dtype=F64)

        def update(v):
            return torch.logsumexp(reward + 0.999 * torch.einsum("aij,j->ai", P, v), dim=0)

        exact = sg.steady_state(update, torch.zeros(10, dtype=F64), forward=sg.Newton(max_steps=50, rtol=1e-12)).value
        solution = sg.steady_state(update, torch.zeros(10, dtype=F64), forward=sg.Picard(100_000))
        error = relative(solution.value, exact)
        assert solution.converged
        assert error < 0.01
        assert error / 3 < solution.error_estimate < 3 * error

    def test_the_backward_pass_sees_what_rounding_hides_from_the_forward_one(self):
        """In float32 the steps are too small to tell their rate; the adjoint tells how far there is to go."""
        x = torch.ones(4, requires_grad=True)
        D = torch.tensor([0.2, 0.3, 0.4, 0.99999])
        with pytest.warns(sg.SteadyStateWarning, match=r"loss (would )?still (change|to come)|nearly singular"):
            solution = sg.steady_state(lambda h: D * h + (1 - D) * x, torch.tensor([0.9, 0.9, 0.9, 0.5]))
            solution.value.sum().backward()


class TestNoFalseAlarms:
    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    @pytest.mark.parametrize("radius", [0.1, 0.5, 0.9, 0.99])
    @pytest.mark.parametrize("family", FAMILIES)
    def test_distance_is_within_ten(self, family, radius, dtype):
        for seed in range(3):
            problem = Affine.of(family, radius, seed=seed, dtype=dtype)
            solution = sg.steady_state(problem, torch.zeros(20, dtype=dtype), forward=sg.Picard(5000), on_failure="raise")
            error = relative(solution.value.detach(), problem.steady())
            assert solution.error_estimate < 0.01
            if dtype is F64:
                assert solution.error_estimate > error / 10

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_at_the_rounding_floor(self, dtype):
        F, W, _, h0 = tanh_problem(gain=0.9, dtype=dtype)
        first = sg.steady_state(F, h0, forward=sg.Picard(5000, torch.finfo(dtype).eps))
        again = sg.steady_state(F, first.value.detach(), on_failure="raise")
        assert again.converged
        assert again.steps <= 2
        again.value.sum().backward()

    @pytest.mark.parametrize("forward", [sg.Picard(), sg.Anderson(), sg.Broyden(), sg.Newton()], ids=repr)
    def test_a_constant_update(self, forward):
        c = torch.ones(5, requires_grad=True)
        solution = sg.steady_state(lambda h: 2 * c + 0 * h, torch.zeros(5), forward=forward, on_failure="raise")
        solution.value.sum().backward()
        assert torch.allclose(c.grad, torch.full((5,), 2.0))
        assert solution.error_estimate < 1e-5

    @pytest.mark.parametrize("forward", [sg.Anderson(500, 1e-9), sg.Broyden(500, 1e-9), sg.Newton()], ids=repr)
    def test_accelerated_solvers_have_a_distance_too(self, forward):
        problem = Affine.of("random", 0.99)
        solution = sg.steady_state(problem, torch.zeros(20, dtype=F64), forward=forward, on_failure="raise")
        error = relative(solution.value.detach(), problem.steady())
        assert error < max(30 * solution.error_estimate, 1e-13)  # below that it is rounding
        assert solution.error_estimate < 0.01


class TestRounding:
    @pytest.mark.parametrize("forward", [sg.Picard(), sg.Picard(damping=0.5), sg.Anderson(20), sg.Broyden(20)], ids=repr)
    @pytest.mark.parametrize("step", [1e-6, 2e-7])
    def test_steps_of_a_few_roundings_that_do_not_shrink_are_a_way_to_go(self, forward, step):
        """In float32 the residual changes by less than a last digit: its change tells nothing, and neither does its size."""
        solution = sg.steady_state(lambda h: h + step * (1 - h**3), torch.full((1,), 0.5), forward=forward, on_failure="ignore")
        assert abs(solution.value.item() - 1) > 0.1  # else it would have a right to be converged
        assert not solution.converged

    def test_many_directions_that_creep(self):
        """A slowed power iteration, of which Anderson's first steps see nothing."""
        A = torch.rand(4, 4, generator=torch.Generator().manual_seed(0)) + 0.05

        def update(h):
            return h + 6e-6 * (h @ A / (h @ A).norm() - h)

        h0 = torch.tensor([0.1, 0.9, 0.2, 0.6])
        solution = sg.steady_state(update, h0, forward=sg.Anderson(20, 1e-3), on_failure="ignore")
        assert not solution.converged

    @pytest.mark.parametrize("forward", [sg.Broyden(500), sg.Anderson(300), sg.Anderson(300, 1e-4)], ids=repr)
    @pytest.mark.parametrize("seed", range(6))
    def test_accelerated_solvers_remember_slow_directions(self, forward, seed):
        """A condition of 1e4 in float32: the last steps alone were off by up to thirty, the rounding floor by thousands."""
        generator, n = torch.Generator().manual_seed(seed), 5 + seed
        Q = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=F64))[0]
        A = (Q * torch.logspace(0, -4, n, dtype=F64)) @ Q.T
        J, c = (torch.eye(n, dtype=F64) - A).float(), torch.randn(n, generator=generator)
        solution = sg.steady_state(lambda h: J @ h + c, torch.zeros(n), forward=forward, on_failure="ignore")
        exact = torch.linalg.solve(torch.eye(n, dtype=F64) - J.double(), c.double())
        assert relative(solution.value.double(), exact) < 5 * solution.error_estimate


class TestStagnation:
    def test_a_flat_residual_of_a_state_that_travels_is_none(self):
        """Logistic growth: the steps grow before they shrink."""

        def update(h):
            return h + 0.01 * h * (1 - h)

        solution = sg.steady_state(update, torch.full((1,), 1e-3, dtype=F64), forward=sg.Picard(5000))
        assert solution.converged
        assert solution.value.item() == pytest.approx(1, rel=1e-2)
        with pytest.warns(sg.SteadyStateWarning, match="MAX_STEPS|DIVERGED"):
            assert sg.steady_state(update, torch.full((1,), 1e-3, dtype=F64), forward=sg.Picard(300)).steps == 300

    def test_a_cycle_is(self):
        with pytest.warns(sg.SteadyStateWarning, match="STAGNATED"):
            solution = sg.steady_state(lambda h: -h, torch.ones(3), forward=sg.Picard(5000))
        assert solution.steps < 200


class TestReturnedIsEvaluated:
    """Anderson and Broyden return states at which F was evaluated, judged by the residual there."""

    @pytest.mark.parametrize("forward", [sg.Anderson(), sg.Broyden(), sg.Anderson(60, 0), sg.Broyden(60, 0)], ids=repr)
    def test_in_every_case(self, forward):
        seen = []
        generator = torch.Generator().manual_seed(0)
        W = 1.5 * torch.randn(8, 8, generator=generator, dtype=F64)
        x = torch.randn(3, 8, generator=generator, dtype=F64)

        def update(h):
            seen.append(h.clone())
            return torch.tanh(h @ W.T + x)

        solution = sg.steady_state(update, torch.zeros(3, 8, dtype=F64), forward=forward, on_failure="ignore")
        assert any(torch.equal(solution.value, h) for h in seen)
        residual = (torch.tanh(solution.value @ W.T + x) - solution.value).norm() / solution.value.norm()
        assert residual.item() == pytest.approx(solution.residuals[-1][1], rel=1e-6)

    @pytest.mark.parametrize("forward", [sg.Anderson(200), sg.Broyden(200)], ids=repr)
    @pytest.mark.parametrize("p", [0.4, 1.0])
    def test_what_has_no_fixed_point_does_not_converge(self, forward, p):
        solution = sg.steady_state(lambda h: h + p + 0.3 * torch.sin(h), torch.zeros(2), forward=forward, on_failure="ignore")
        assert not solution.converged


def test_the_state_at_the_end_is_looked_at_in_the_last_digits():
    """Nothing here is absolute: the same problem in other units ends after the same steps."""
    for dtype, scales in {torch.float32: (1e-30, 1e-12, 1.0, 1e12, 1e30), F64: (1e-250, 1.0, 1e250)}.items():
        steps = set()
        for scale in scales:
            W = torch.tensor([[0.5, 0.2], [0.1, 0.3]], dtype=dtype, requires_grad=True)
            solution = sg.steady_state(lambda h, s=scale, W=W: W @ h + s, torch.zeros(2, dtype=dtype), on_failure="raise")
            steps.add(solution.steps)
            exact = scale * torch.linalg.solve(torch.eye(2, dtype=dtype) - W.detach(), torch.ones(2, dtype=dtype))
            assert relative(solution.value.detach() / scale, exact / scale) < 1e-4
            (grad,) = torch.autograd.grad((solution.value / scale).sum(), W)
            z = torch.linalg.solve(torch.eye(2, dtype=dtype) - W.detach().T, torch.ones(2, dtype=dtype))
            assert relative(grad, torch.outer(z, exact / scale)) < 1e-3
        assert len(steps) == 1


@pytest.mark.parametrize("size", [1e-10, 1.0, 1e5, 1e15])
def test_leaving_an_unstable_point_is_no_divergence_in_any_unit(size):
    solution = sg.steady_state(lambda h: size * torch.tanh(3 * h / size + 1e-6), torch.zeros(1), on_failure="raise")
    assert solution.value.item() / size == pytest.approx(0.9949, abs=1e-3)


def test_mixed_scales_are_judged_leaf_by_leaf():
    """Positions of 1e5 beside fractions of 0.2: the norm of both hides the fractions."""
    a = torch.tensor(0.9, dtype=F64, requires_grad=True)

    def update(s):
        return {"p": 0.5 * s["p"] + 5e4, "f": a * s["f"] + 0.017 + 1e-8 * s["p"]}

    start = {"p": torch.full((3,), 1e5, dtype=F64), "f": torch.zeros(3, dtype=F64)}
    solution = sg.steady_state(update, start, forward=sg.Picard(1000), on_failure="raise")
    exact = (0.017 + 1e-3) / 0.1
    assert solution.value["f"][0].item() == pytest.approx(exact, rel=1e-3)
    (grad,) = torch.autograd.grad(solution.value["f"].sum(), a)
    assert grad.item() == pytest.approx(3 * exact / 0.1, rel=1e-2)


def test_adjoint_of_mixed_scales():
    """A loss on the small leaf: what its adjoint leaves on the large one is worth its size."""
    c = torch.tensor(1.0, dtype=torch.float32, requires_grad=True)

    def update(s):
        return {"p": 0.9 * s["p"] + 1e4 * c, "f": 0.8 * s["f"] + 1e-6 * s["p"]}

    start = {"p": torch.full((3,), 1e5), "f": torch.full((3,), 0.5)}
    for gradient in ("auto", "gmres", "lsqr", "cg-rbp", "bicgstab", "anderson"):
        solution = sg.steady_state(update, start, forward=sg.Picard(2000, 1e-6), gradient=gradient, on_failure="raise")
        (grad,) = torch.autograd.grad(solution.value["f"].sum(), c)
        assert grad.item() == pytest.approx(3 * 1e-6 * 1e5 / 0.2, rel=1e-3)


def test_a_leaf_that_rests_at_zero_raises_no_alarm():
    """Gradient descent with momentum: the momentum is zero where the parameters rest, and its relative change never falls."""
    for dtype in (torch.float32, F64):
        A = torch.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=dtype)
        x = torch.ones(2, dtype=dtype, requires_grad=True)

        def step(s, A=A, x=x):
            m = 0.5 * s["m"] - 0.2 * (A @ s["p"] - x)
            return {"p": s["p"] + m, "m": m}

        start = {"p": torch.zeros(2, dtype=dtype), "m": torch.zeros(2, dtype=dtype)}
        solution = sg.steady_state(step, start, forward=sg.Picard(500), on_failure="raise")
        (grad,) = torch.autograd.grad(solution.value["p"].sum(), x)
        assert torch.allclose(grad, torch.linalg.solve(A, torch.ones(2, dtype=dtype)), rtol=1e-3)


def test_distance_of_a_batch_is_that_of_its_worst_problem():
    slope = torch.tensor([[0.5], [0.999], [0.1]], dtype=F64)
    with pytest.warns(sg.SteadyStateWarning, match="1 of 3 problems"):
        solution = sg.steady_state(lambda h, s: s * h + 1, torch.zeros(3, 2, dtype=F64), slope, batch_dims=1)
    assert solution.converged.tolist() == [True, False, True]
    left = abs(solution.value[1, 0].item() - 1000) / solution.value[1, 0].item()
    assert solution.error_estimate == pytest.approx(left, rel=0.2)
    assert math.isfinite(solution.error_estimate)


def test_a_slow_block_that_hardly_matters_needs_a_smaller_tolerance():
    """The limit that docs/certificate.md names: a gradient of its own parameter is lost within a total error of a per cent."""

    def gradient(method):
        w = torch.tensor(1.0, requires_grad=True)
        solution = sg.steady_state(
            lambda h: torch.stack([0.5 * h[0] + 1e-6 * h[1] + 1, 0.9999 * h[1] + 1e-4 * w]),
            torch.tensor([2.0, 1.0]),
            gradient=method,
        )
        return torch.autograd.grad(solution.value[0], w)[0].item()

    with pytest.warns(sg.SteadyStateWarning, match="a gradient is not"):
        assert gradient(sg.Implicit(sg.Neumann())) < 1e-7
    assert gradient("auto") == pytest.approx(2e-6, rel=1e-2)
    assert gradient(sg.Implicit(sg.Auto(rtol=1e-7))) == pytest.approx(2e-6, rel=1e-2)
    assert gradient("dense") == pytest.approx(2e-6, rel=1e-2)
