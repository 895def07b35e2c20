"""States that are further from the steady one than the last steps of the search say: the backward pass sees it."""

import pytest
import torch

import steadygrad as sg
from problems import relative

F64 = torch.float64
UNSTEADY = "the state is not steady"
SHIFTS = "gradient is not: on the way that is left"
LONG = sg.Picard(max_steps=10_000, rtol=1e-13)


@pytest.mark.parametrize("gradient", ["auto", "gmres", "dense"])
@pytest.mark.parametrize("forward", [sg.Picard(), sg.Newton(), sg.Anderson()], ids=repr)
def test_rounding_that_hides_that_the_state_moves(forward, gradient):
    """In float32 F(h) − h is zero at h = 1, which is 3e-4 from the steady state: the gain of (I − J)⁻¹ is 10⁴."""
    w = torch.zeros((), requires_grad=True)
    target, b = 1.0003 + 1e-5 * torch.arange(8), torch.linspace(-1, 2, 8)
    with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
        solution = sg.steady_state(
            lambda h: (1 - 1e-4) * h + 1e-4 * target + w * (h - 0.99), torch.ones(8), forward=forward, gradient=gradient
        )
        found = torch.autograd.grad((solution.value * b).sum(), w)[0]
    assert solution.residuals[-1][1] == 0
    exact = float(1e4 * (b * (target - 0.99)).sum())
    assert abs(float(found) / exact - 1) > 0.01
    assert solution.adjoint.shift > 0.01


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("gradient", ["auto", "gmres", "dense"])
def test_rounding_is_looked_at_beside_a_problem_that_failed(gradient, bad):
    w = torch.zeros((), requires_grad=True)
    target = (1.0003 + 1e-5 * torch.arange(8)).repeat(2, 1)
    b = torch.linspace(-1, 2, 8).repeat(2, 1)
    b[0] = bad
    with pytest.warns(sg.SteadyStateWarning) as said:
        solution = sg.steady_state(
            lambda h: (1 - 1e-4) * h + 1e-4 * target + w * (h - 0.99), torch.ones(2, 8), batch_dims=1, gradient=gradient
        )
        torch.autograd.grad(solution.value, w, b)
    assert any(SHIFTS in str(warning.message) for warning in said)


class TestAHiddenSlowDirection:
    """Anderson's steps know nothing of a direction that they hardly excite; the adjoint does."""

    @pytest.mark.parametrize("seed", range(4))
    def test_is_seen_by_the_backward_pass(self, seed):
        generator = torch.Generator().manual_seed(seed)
        Q = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=F64))[0]
        rates = torch.tensor([1 - 2e-4, 0.5, -0.3, 0.1, 0.4, -0.5], dtype=F64)
        J = Q @ torch.diag(rates) @ Q.T
        c = Q @ torch.tensor([4e-5, 1.0, -1.0, 1.0, 0.5, -0.5], dtype=F64)
        w = torch.ones(6, dtype=F64, requires_grad=True)
        with pytest.warns(sg.SteadyStateWarning, match=UNSTEADY):
            solution = sg.steady_state(lambda h: J @ (w * h) + c, torch.zeros(6, dtype=F64), forward=sg.Anderson(rtol=1e-4))
            assert solution.converged
            assert solution.error_estimate < 0.01
            b = torch.randn(6, generator=generator, dtype=F64)
            torch.autograd.grad(solution.value @ b, w)

    @pytest.mark.parametrize("forward", [sg.Broyden(rtol=1e-3), sg.Anderson(rtol=1e-3)], ids=repr)
    @pytest.mark.parametrize(("gap", "weak"), [(1e-2, 1e-3), (1e-2, 3e-4)])
    def test_is_not_overlooked_along_the_last_step(self, forward, gap, weak):
        """States one to four per cent off at an estimate of 0.1 %: the last step leads along the fast directions."""
        generator = torch.Generator().manual_seed(16)
        Q = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=F64))[0]
        J = Q @ torch.diag(torch.tensor([1 - gap, 0.5, -0.3, 0.1, 0.4, -0.5], dtype=F64)) @ Q.T
        c = Q @ torch.tensor([weak, 1.0, -1.0, 1.0, 0.5, -0.5], dtype=F64)
        w = torch.ones(6, dtype=F64, requires_grad=True)
        b = torch.randn(6, generator=generator, dtype=F64)
        with pytest.warns(sg.SteadyStateWarning, match=f"{UNSTEADY}|{SHIFTS}"):
            solution = sg.steady_state(lambda h: J @ (w * h) + c, torch.zeros(6, dtype=F64), forward=forward)
            assert solution.error_estimate < 0.002
            torch.autograd.grad(solution.value @ b, w)

    def test_of_oscillators_whose_phases_have_locked(self):
        """The coupling acts through sines that nearly cancel: a state 0.4 % off had a gradient 1.3 % off."""
        generator = torch.Generator().manual_seed(31)
        speeds = 0.3 * torch.randn(8, generator=generator, dtype=F64)
        b = torch.randn(8, generator=generator, dtype=F64)
        coupling = torch.tensor(0.6, dtype=F64, requires_grad=True)

        def update(h):
            new = h + 0.3 * (speeds - speeds.mean() + coupling * torch.sin(h.unsqueeze(-2) - h.unsqueeze(-1)).mean(-1))
            return new - new.mean()

        def gradient(forward):
            solution = sg.steady_state(update, torch.zeros(8, dtype=F64), forward=forward)
            return torch.autograd.grad(solution.value @ b, coupling)[0], solution

        with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
            found, solution = gradient(sg.Anderson(rtol=1e-3))
        assert solution.adjoint.shift == pytest.approx(relative(found, gradient(LONG)[0]), rel=0.2)


class TestARootOfHighMultiplicity:
    """h ← h − 0.3·(h − a)³: all first-order estimates of the distance are a third of it, also Newton's own step."""

    @pytest.mark.parametrize("forward", [sg.Picard(max_steps=3000, rtol=1e-4), sg.Broyden(rtol=1e-4)], ids=repr)
    @pytest.mark.parametrize("slope", [1e-4, 1e-3])
    def test_is_further_away_than_its_slope_says(self, forward, slope):
        a = torch.tensor([1.2, 1.4, 1.9], dtype=F64, requires_grad=True)
        with pytest.warns(sg.SteadyStateWarning, match=UNSTEADY):
            solution = sg.steady_state(
                lambda h: h - 0.3 * ((h - a) ** 3 + slope * (h - a)), torch.ones(3, dtype=F64), forward=forward
            )
            assert solution.converged
            torch.autograd.grad(solution.value.sum(), a)
        assert relative(solution.value, a) > 0.01

    def test_and_a_near_one_is_not(self):
        """Newton's step leaves nothing of a residual that is linear."""
        x = torch.ones(4, dtype=F64, requires_grad=True)
        forward = sg.Picard(max_steps=3000, rtol=7e-5)
        solution = sg.steady_state(lambda h: 0.99 * h + 0.01 * x, torch.zeros(4, dtype=F64), forward=forward)
        solution.value.sum().backward()
        assert solution.error_estimate > 0.005
