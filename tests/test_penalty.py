"""Penalties: values against dense algebra, gradients by gradcheck or by z-score."""

import math
from functools import partial
from types import MappingProxyType

import pytest
import torch

import steadygrad as sg
from penalties import DENSE, EVERY, EXACT, EYE, NAMES, nonlinear, nonlinear_plain, normal_matrix, seeded_normal
from problems import FAMILIES, matrix
from steadygrad import penalty
from steadygrad.penalty.products import Products


class TestValues:
    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("radius", [0.5, 1.5])
    @pytest.mark.parametrize("name", NAMES)
    def test_matches_dense_algebra(self, name, family, radius):
        J = matrix(family, radius)
        value = EXACT[name](lambda h: J @ h + 1, torch.zeros(20, dtype=torch.float64))
        assert value.shape == ()
        assert not value.requires_grad  # nothing here needs a gradient
        assert torch.allclose(value, DENSE[name](J), rtol=1e-9, atol=1e-10)

    @pytest.mark.parametrize(
        "name, family",  # all singular values of a rotation are alike: no gradient of the largest or smallest
        [(name, f) for name in NAMES for f in FAMILIES if f != "rotation" or name not in ("spectral", "lanczos")],
    )
    def test_gradient_matches_dense_algebra(self, name, family):
        J = matrix(family, 1.5, seed=3).requires_grad_()
        h = torch.zeros(20, dtype=torch.float64)
        value = EXACT[name](lambda h: J @ h, h) if name != "spectral" else penalty.spectral(lambda h: J @ h, h, steps=2000)
        (ours,) = torch.autograd.grad(value, J)
        (dense,) = torch.autograd.grad(DENSE[name](J), J)
        assert torch.allclose(ours, dense, rtol=1e-7, atol=1e-8)

    def test_multiple_eigenvalues_have_a_subgradient(self):
        """A rotation has all eigenvalues of A twice: the Krylov space ends half way, and uᵀ(dA)u holds for some unit u."""
        J = matrix("rotation", 0.9).requires_grad_()
        (grad,) = torch.autograd.grad(penalty.lanczos(lambda h: J @ h, torch.zeros(20, dtype=torch.float64), steps=40), J)
        values, vectors = torch.linalg.eigh(normal_matrix(J.detach()))
        space = vectors[:, :2]
        assert values[1] - values[0] < 1e-12
        # −λ_min = −‖(I − J)u‖²: gradient 2 (I − J) u uᵀ, of rank one with u in the eigenspace.
        outer = torch.linalg.solve(EYE - J.detach(), grad) / 2
        assert torch.allclose(space @ space.T @ outer @ space @ space.T, outer, atol=1e-9)
        assert abs(outer.trace() - 1) < 1e-9
        assert torch.linalg.matrix_rank(outer, rtol=1e-6) == 1

    def test_column_options(self):
        J = matrix("random", 0.3)
        norms, h = J.abs().sum(0), torch.zeros(20, dtype=torch.float64)
        eta = norms.sort().values[17].item()
        excess = torch.relu(norms - eta).square()
        assert torch.allclose(penalty.column_l1(lambda h: J @ h, h, eta=0.1, over="mean"), (norms - 0.1).square().mean())
        assert eta < 1
        assert torch.allclose(penalty.column_l1(lambda h: J @ h, h, eta=eta, hinge=True), excess.max())
        assert torch.allclose(penalty.column_l1(lambda h: J @ h, h, eta=eta, hinge=True, over="mean"), excess.mean())
        assert torch.allclose(penalty.column_l1(lambda h: J @ h, h, eta=0.9, columns=20), DENSE["column_l1"](J))  # all of them

    @pytest.mark.parametrize("steps", [1, 3, 8, 15])
    def test_lanczos_is_an_upper_bound_of_the_eigenvalue(self, steps):
        J, h = matrix("random", 0.9), torch.zeros(20, dtype=torch.float64)
        fewer, value = (penalty.lanczos(lambda h: J @ h, h, steps=k) for k in (steps, steps + 1))
        assert fewer <= value + 1e-12
        assert value <= DENSE["lanczos"](J) + 1e-12
        assert torch.allclose(value, penalty.lanczos(lambda h: J @ h, h, steps=steps + 1, through=False))

    @pytest.mark.parametrize("steps", [1, 5, 20])
    def test_spectral_is_a_lower_bound(self, steps):
        J, h = matrix("nonnormal", 0.9), torch.zeros(20, dtype=torch.float64)
        assert penalty.spectral(lambda h: J @ h, h, steps=steps) <= DENSE["spectral"](J) + 1e-12

    def test_few_columns_are_a_lower_bound_that_finds_what_stands_out(self):
        """8 of 200 columns: one of twice the length is found always, and of nearly equal ones never one of the short."""
        h = torch.zeros(200, dtype=torch.float64)
        for seed in range(20):
            J = seeded_normal(200, 200, seed=seed) * torch.linspace(0.5, 1, 200, dtype=torch.float64) / 100
            value, exact = (penalty.column_l1(J.mv, h, columns=k, hinge=True, seed=seed) for k in (8, None))
            assert 0.5 * exact < value <= exact * (1 + 1e-12)
            J[:, 17] *= 4
            assert torch.allclose(penalty.column_l1(J.mv, h, columns=8, seed=seed), DENSE["column_l1"](J))

    def test_a_tiny_j_does_not_underflow(self):
        J = matrix("random", 0.9).float() * 1e-30
        value = penalty.spectral(lambda h: J @ h, torch.zeros(20), steps=200)
        assert torch.allclose(value * 1e30, torch.linalg.matrix_norm(J.double(), 2).float() * 1e30, rtol=1e-3)


class TestGradients:
    @pytest.mark.parametrize(
        "call",
        [
            penalty.column_l1,
            lambda *a: penalty.column_l1(*a, eta=0.1, over="mean", hinge=True),
            lambda *a: penalty.column_l1(*a, columns=3),
            lambda *a: penalty.column_l1(*a, columns=3, over="mean"),
            penalty.gershgorin,
            lambda *a: penalty.gershgorin(*a, samples=2),
            lambda *a: penalty.lanczos(*a, steps=1),
            lambda *a: penalty.lanczos(*a, steps=3),  # through the steps: exact before convergence
            lambda *a: penalty.lanczos(*a, steps=10),
            lambda *a: penalty.lanczos(*a, steps=10, through=False),
            lambda *a: penalty.frobenius(*a, samples=None),
            lambda *a: penalty.frobenius(*a, samples=3),
            lambda *a: penalty.spectral(*a, steps=40),
        ],
    )
    def test_gradcheck_by_parameters_args_and_state(self, call):
        W, x, h = (seeded_normal(*shape, seed=i).requires_grad_() for i, shape in enumerate([(5, 5), (5,), (5,)]))
        assert call(lambda h, x: nonlinear(W, x, h), h, x) != 0  # the hinges are open
        assert torch.autograd.gradcheck(lambda W, x, h: call(lambda h, x: nonlinear(W, x, h), h, x), (W, x, h), atol=1e-6)

    @pytest.mark.parametrize("family", FAMILIES[:3])
    def test_lanczos_gradient_is_that_of_the_eigenvector(self, family):
        """−dλ_min = −uᵀ(dA)u = 2 ⟨(I − J)u uᵀ, dJ⟩, by both ways of differentiation."""
        J = matrix(family, 0.9, seed=1).requires_grad_()
        u = torch.linalg.eigh(normal_matrix(J.detach())).eigenvectors[:, 0]
        expected = 2 * torch.outer((EYE - J.detach()) @ u, u)
        for through in (True, False):
            value = penalty.lanczos(lambda h: J @ h, torch.zeros(20, dtype=torch.float64), steps=20, through=through)
            (grad,) = torch.autograd.grad(value, J)
            assert torch.allclose(grad, expected, atol=1e-8)

    @EVERY
    def test_state_with_its_graph_gives_the_total_derivative(self, call):
        """Through solution.value the gradient has both parts; with .detach() only the explicit one."""
        W = (0.3 * seeded_normal(4, 4)).requires_grad_()
        x, bump = seeded_normal(4, seed=1), seeded_normal(4, 4, seed=2)

        def steady(W):
            start, forward = torch.zeros(4, dtype=torch.float64), sg.Picard(max_steps=1000, rtol=1e-13)
            return sg.steady_state(partial(nonlinear_plain, W, x), start, forward=forward, gradient="dense").value

        def value_at(W, held=None):
            update = partial(nonlinear_plain, W, x)
            held = steady(W) if held is None else held
            return call(update, held, **({"steps": 400} if call is penalty.spectral else {}))

        def along_bump(function):
            return (function(W.detach() + 1e-5 * bump) - function(W.detach() - 1e-5 * bump)) / 2e-5

        fixed = steady(W).detach()
        for held in (None, fixed):
            central = along_bump(partial(value_at, held=held))
            (grad,) = torch.autograd.grad(value_at(W, held), W)
            assert torch.allclose((grad * bump).sum(), central, rtol=1e-5, atol=1e-7)

    def test_private_leaves_collect_no_gradient(self):
        W, x, h = seeded_normal(5, 5).requires_grad_(), seeded_normal(5), seeded_normal(5)
        J = Products(lambda h: nonlinear(W, x, h), h, (), 0)
        (J.vjp(J.jvp(torch.ones(1, 5, dtype=torch.float64)))).sum().backward()
        private = J.h.grad_fn.next_functions[0][0].variable
        assert W.grad is not None
        assert private is not h
        assert private.grad is None
        assert J._double.probes[0].grad is None

    @EVERY
    def test_nothing_that_needs_a_gradient(self, call):
        assert not call(torch.tanh, torch.ones(3)).requires_grad


def z_scores(draws, truth):
    """Of the mean of many draws (draw, ...) from the truth, where they vary."""
    mean, error = draws.mean(0), draws.std(0) / math.sqrt(len(draws))
    assert torch.allclose(mean[error == 0], truth[error == 0])
    return ((mean - truth) / error)[error > 0]


class TestUnbiased:
    """Over 600 fixed seeds value and gradient lie within what 26 normal numbers do (|z| < 4.2 but once in 1500 times)."""

    W = 0.5 * seeded_normal(5, 5, seed=7)
    CASES = MappingProxyType(
        {
            "frobenius": (lambda f, h, s: penalty.frobenius(f, h, seed=s), DENSE["frobenius"]),
            "frobenius 3": (lambda f, h, s: penalty.frobenius(f, h, samples=3, seed=s), DENSE["frobenius"]),
            "column mean": (
                lambda f, h, s: penalty.column_l1(f, h, columns=2, over="mean", seed=s),
                lambda J: (J.abs().sum(0) - 0.9).square().mean(),
            ),
            # The square of the norm is what the estimate of gershgorin is unbiased for.
            "gershgorin": (
                lambda f, h, s: (penalty.gershgorin(f, h, samples=2, seed=s) + 1).square() / 5,
                lambda J: torch.linalg.matrix_norm(normal_matrix(J) - torch.eye(5, dtype=J.dtype)).square(),
            ),
        }
    )

    @pytest.mark.parametrize("estimate, dense", CASES.values(), ids=CASES)
    def test_mean_over_seeds(self, estimate, dense):
        W, h = self.W.clone().requires_grad_(), torch.zeros(5, dtype=torch.float64)
        values = [estimate(lambda h: W @ h, h, seed) for seed in range(600)]
        grads = torch.stack([torch.autograd.grad(value, W)[0] for value in values])
        truth = dense(W)
        assert all(value > 1 / 5 for value in values) or dense is not self.CASES["gershgorin"][1]  # the hinge is open
        assert z_scores(torch.stack(values).detach(), truth.detach()).abs().max() < 4.2
        assert z_scores(grads, torch.autograd.grad(truth, W)[0]).abs().max() < 4.2

    def test_frobenius_spreads_no_more_than_it_says(self):
        h = torch.zeros(5, dtype=torch.float64)
        values = torch.stack([penalty.frobenius(lambda h: self.W @ h, h, samples=2, seed=s) for s in range(300)])
        assert 0 < values.std() <= DENSE["frobenius"](self.W) * 1.1

    def test_gershgorin_comes_out_too_small_by_little(self):
        h, exact = torch.zeros(5, dtype=torch.float64), DENSE["gershgorin"](self.W)
        few, many = (
            torch.stack([penalty.gershgorin(lambda h: self.W @ h, h, samples=k, seed=s) for s in range(100)]).mean()
            for k in (1, 16)
        )
        assert few < many < exact * 1.01
        assert many > 0.95 * exact

    def test_seed_says_it_all(self):
        h = torch.zeros(5, dtype=torch.float64)

        def call(seed):
            return penalty.frobenius(lambda h: self.W @ h, h, seed=seed)

        first = call(1)
        torch.rand(3)
        state = torch.get_rng_state()
        assert torch.equal(call(1), first)
        assert torch.equal(torch.get_rng_state(), state)  # and torch's own randomness is left alone
        assert not torch.equal(call(2), first)
