"""Penalties: values against dense algebra, gradients by gradcheck or by z-score, and that they repair what they are for."""

import math
from functools import partial
from types import MappingProxyType

import pytest
import torch

import steadygrad as sg
from problems import FAMILIES, matrix, tanh_problem
from steadygrad import penalty
from steadygrad.penalty.products import Products

EYE = torch.eye(20, dtype=torch.float64)


def seeded_normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def normal_matrix(J):
    S = torch.eye(J.shape[-1], dtype=J.dtype) - J
    return S.mT @ S


# The penalties of a dense J, each written as its definition.
DENSE = {
    "column_l1": lambda J: (J.abs().sum(0) - 0.9).square().max(),
    "frobenius": lambda J: torch.linalg.matrix_norm(J).square(),
    "spectral": lambda J: torch.linalg.matrix_norm(J, 2),
    "gershgorin": lambda J: torch.relu(
        math.sqrt(len(J)) * torch.linalg.matrix_norm(normal_matrix(J) - torch.eye(len(J), dtype=J.dtype)) - 1
    ),
    "lanczos": lambda J: -torch.linalg.eigvalsh(normal_matrix(J))[0],
}
# And the calls that reach them to rounding.
EXACT = {
    "column_l1": penalty.column_l1,
    "frobenius": lambda *a, **k: penalty.frobenius(*a, samples=None, **k),
    "spectral": lambda *a, **k: penalty.spectral(*a, steps=300, **k),
    "gershgorin": penalty.gershgorin,
    "lanczos": lambda *a, **k: penalty.lanczos(*a, steps=40, **k),
}
NAMES = list(EXACT)
# One cheap call of each kind, for what has to hold of all.
CALLS = {
    **{name: EXACT[name] for name in ("column_l1", "frobenius", "gershgorin")},
    "spectral": penalty.spectral,
    "lanczos": penalty.lanczos,
    "lanczos fixed": lambda *a, **k: penalty.lanczos(*a, through=False, **k),
    "column_l1 drawn": lambda *a, **k: penalty.column_l1(*a, columns=2, **k),
    "column_l1 mean": lambda *a, **k: penalty.column_l1(*a, columns=2, over="mean", **k),
    "frobenius drawn": penalty.frobenius,
    "gershgorin drawn": lambda *a, **k: penalty.gershgorin(*a, samples=2, **k),
}
EVERY = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


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


def nonlinear(W, x, h):
    """A smooth update whose J depends on W, x and h."""
    return torch.tanh(W @ h + x) * torch.cos(h)


def nonlinear_plain(W, x, h):
    return torch.tanh(W @ h + x)


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
        assert J._probe[0].grad is None

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


class TestShapes:
    @EVERY
    def test_nested_state_is_the_same_problem(self, call):
        W, x, h = seeded_normal(6, 6).requires_grad_(), seeded_normal(6, seed=1), seeded_normal(6, seed=2)

        def nested(state):
            new = nonlinear(W, x, torch.cat([state["a"], state["b"][0].flatten()]))
            return {"b": (new[2:].view(2, 2),), "a": new[:2]}

        flat_value = call(lambda h: nonlinear(W, x, h), h)
        nested_value = call(nested, {"a": h[:2], "b": (h[2:].view(2, 2),)})
        assert torch.allclose(flat_value, nested_value)
        assert torch.allclose(*(torch.autograd.grad(value, W)[0] for value in (flat_value, nested_value)), atol=1e-10)

    @pytest.mark.parametrize("name", NAMES)
    def test_batch_is_the_mean_over_its_problems(self, name):
        W = seeded_normal(4, 4).requires_grad_()
        x, h = seeded_normal(2, 3, 4, seed=1), seeded_normal(2, 3, 4, seed=2)
        batch = EXACT[name](lambda h, x: torch.tanh(h @ W.T + x), h, x, batch_dims=2)
        single = [EXACT[name](lambda h, x: torch.tanh(W @ h + x), h[i, j], x[i, j]) for i in range(2) for j in range(3)]
        assert torch.allclose(batch, torch.stack(single).mean(), rtol=1e-7)
        (ours,), (theirs,) = (torch.autograd.grad(value, W) for value in (batch, torch.stack(single).mean()))
        assert torch.allclose(ours, theirs, atol=1e-6)

    def test_problems_of_a_batch_may_end_their_lanczos_at_different_steps(self):
        """J = 0 in one problem, of rank one in another, full in the third."""
        scale = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
        rank_one = torch.outer(seeded_normal(6), seeded_normal(6, seed=1)) / 3
        full = matrix("random", 0.8, size=6)
        Js = (torch.stack([rank_one, rank_one, full]) * scale[:, None, None]).requires_grad_()
        h = torch.zeros(3, 6, dtype=torch.float64)
        value = penalty.lanczos(lambda h: (Js @ h.unsqueeze(2)).squeeze(2), h, steps=6, batch_dims=1)
        assert torch.allclose(value, torch.stack([DENSE["lanczos"](J) for J in Js]).mean())
        (grad,) = torch.autograd.grad(value, Js)
        dense = torch.autograd.grad(torch.stack([DENSE["lanczos"](J) for J in Js[1:]]).sum() / 3, Js)[0]
        assert torch.allclose(grad[1:], dense[1:], atol=1e-8)
        assert grad.isfinite().all()

    @EVERY
    def test_sparse_update(self, call):
        dense = torch.where(seeded_normal(8, 8).abs() > 1, seeded_normal(8, 8, seed=1), 0)
        A, W, h = dense.to_sparse_coo(), (0.5 * seeded_normal(3, 3, seed=2)).requires_grad_(), seeded_normal(8, 3, seed=3)
        sparse_value = call(lambda h: torch.tanh(torch.sparse.mm(A, h @ W)), h)
        dense_value = call(lambda h: torch.tanh(dense @ h @ W), h)
        assert torch.allclose(sparse_value, dense_value)
        assert torch.allclose(*(torch.autograd.grad(value, W)[0] for value in (sparse_value, dense_value)), atol=1e-9)

    @EVERY
    def test_float32(self, call):
        W, x, h = seeded_normal(6, 6), seeded_normal(6, seed=1), seeded_normal(6, seed=2)
        results = []
        for dtype in (torch.float32, torch.float64):
            V = W.to(dtype).requires_grad_()
            value = call(lambda h, V=V, dtype=dtype: nonlinear(V, x.to(dtype), h), h.to(dtype))
            assert value.dtype is dtype
            results.append((value.double(), torch.autograd.grad(value, V)[0].double()))
        (value, grad), (exact, exact_grad) = results
        assert torch.allclose(value, exact, rtol=1e-4)
        assert (grad - exact_grad).norm() < 1e-3 * exact_grad.norm()

    @EVERY
    @pytest.mark.parametrize("a", [0.0, 0.7, 1.0, -2.0])
    def test_one_number(self, call, a):
        """n = 1: F = a h. Every penalty has its closed form, and no gradient is NaN."""
        name = next(key for key, value in CALLS.items() if value is call).split()[0]
        a = torch.tensor([[a]], dtype=torch.float64, requires_grad=True)
        value = call(lambda h: a[0] * h, torch.ones(1, dtype=torch.float64))
        assert torch.allclose(value, DENSE[name](a))
        value.backward()
        assert a.grad.isfinite().all()

    @EVERY
    @pytest.mark.parametrize("factor", [0.0, 1.0])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_j_zero_and_j_identity(self, call, factor, dtype):
        name = next(key for key, value in CALLS.items() if value is call).split()[0]
        W = (factor * torch.eye(4, dtype=dtype)).requires_grad_()
        value = call(lambda h: W @ h + 1, torch.zeros(4, dtype=dtype))
        assert torch.allclose(value, DENSE[name](W), atol=1e-6)
        value.backward()
        assert W.grad.isfinite().all()

    @EVERY
    def test_f_that_does_not_depend_on_h(self, call):
        name = next(key for key, value in CALLS.items() if value is call).split()[0]
        c = torch.ones(4, dtype=torch.float64, requires_grad=True)
        value = call(lambda h: 2 * c, torch.zeros(4, dtype=torch.float64))
        assert torch.allclose(value, DENSE[name](torch.zeros(4, 4, dtype=torch.float64)), atol=1e-12)
        assert not value.requires_grad

    @EVERY
    def test_f_returns_what_it_was_given(self, call):
        name = next(key for key, value in CALLS.items() if value is call).split()[0]
        value = call(lambda h: h, torch.zeros(4, dtype=torch.float64, requires_grad=True))
        assert torch.allclose(value, DENSE[name](torch.eye(4, dtype=torch.float64)), atol=1e-12)

    @EVERY
    def test_only_a_part_of_a_nested_state_moves(self, call):
        """A leaf that F hands on as a constant has rows of zeros in J."""
        a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        value = call(lambda s: (a * s[0] + s[1], torch.ones(2).double()), (torch.ones(2).double(), torch.ones(2).double()))
        value.backward()
        assert a.grad.isfinite()


class TestModes:
    @EVERY
    def test_no_grad_has_the_same_value(self, call):
        update, W, x, h = tanh_problem(size=5, rows=3)
        with torch.no_grad():
            quiet = call(update, h, batch_dims=1)
        assert not quiet.requires_grad
        assert torch.allclose(call(update, h, batch_dims=1), quiet)

    def test_dropout_is_fixed_within_a_call(self):
        W = matrix("random", 0.9)
        torch.manual_seed(3)
        mask = torch.nn.functional.dropout(torch.ones(20, dtype=torch.float64), 0.5)
        torch.manual_seed(3)
        value = penalty.lanczos(lambda h: torch.nn.functional.dropout(W @ h, 0.5), torch.ones(20, dtype=torch.float64), steps=20)
        assert torch.allclose(value, DENSE["lanczos"](mask[:, None] * W))

    def test_module_parameters(self):
        cell = torch.nn.GRUCell(3, 4)
        x, h = seeded_normal(2, 3, dtype=torch.float32), seeded_normal(2, 4, dtype=torch.float32)
        loss = sum(EXACT[name](lambda h, x: cell(x, h), h, x, batch_dims=1) for name in NAMES)
        loss.backward()
        assert all(p.grad.isfinite().all() for p in (cell.weight_hh, cell.weight_ih))
        assert cell.weight_hh.grad.norm() > 0

    def test_gradient_can_be_differentiated_again(self):
        W, x, h = (seeded_normal(*shape, seed=i).requires_grad_() for i, shape in enumerate([(3, 3), (3,), (3,)]))
        assert torch.autograd.gradgradcheck(
            lambda W, x, h: penalty.frobenius(lambda h, x: nonlinear(W, x, h), h, x), (W, x, h), atol=1e-6
        )


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        ctx.save_for_backward(h)
        return h**3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0] ** 2


class Untracked(Cube):
    @staticmethod
    def backward(ctx, g):
        return (3 * g * ctx.saved_tensors[0] ** 2).detach()


class TestBadInput:
    @EVERY
    @pytest.mark.parametrize("operation", [Cube, Untracked])
    def test_operation_without_second_derivative(self, call, operation):
        """Alone, or as a part of F whose other parts have one: refused, no part of the gradient is lost in silence."""
        a, h = torch.tensor(0.5, requires_grad=True, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
        for update in (lambda h: operation.apply(a * h), lambda h: operation.apply(a * h) + torch.tanh(a * h.roll(1))):
            with pytest.raises(sg.SteadyStateError, match=r"second derivative.*no_grad"):
                call(update, h)

    @pytest.mark.parametrize("operation", [Cube, Untracked])
    @pytest.mark.parametrize("name", ["column_l1", "frobenius", "frobenius drawn", "gershgorin"])
    def test_its_value_without_gradients(self, name, operation):
        h = torch.tensor([1.0, 0.5], dtype=torch.float64)
        with torch.no_grad():
            assert torch.allclose(CALLS[name](operation.apply, h), DENSE[name.split()[0]](torch.diag(3 * h**2)))

    @EVERY
    def test_nan(self, call):
        with pytest.raises(sg.SteadyStateError, match="h holds inf or NaN"):
            call(lambda h: h, torch.tensor([1.0, math.nan]))
        with pytest.raises(sg.SteadyStateError, match="update returned inf or NaN at h"):
            call(lambda h: h / 0, torch.ones(3))

    @EVERY
    def test_j_not_finite(self, call):
        with pytest.raises(sg.SteadyStateError, match=r"1 of 2 problems.*square root"):
            call(lambda h: h.sqrt() + h, torch.tensor([[0.0, 1.0], [1.0, 1.0]]), batch_dims=1)

    @EVERY
    def test_wrong_updates_and_states(self, call):
        with pytest.raises(ValueError, match=r"update returned shape \(3,\) for a state of shape \(4,\)"):
            call(lambda h: h[:3], torch.ones(4))
        with pytest.raises(TypeError, match="F must map a state to a state of the same structure"):
            call(lambda h: (h, h), torch.ones(4))
        with pytest.raises(TypeError, match="update must be callable"):
            call("tanh", torch.ones(4))
        with pytest.raises(TypeError, match="floating point"):
            call(torch.tanh, torch.ones(4, dtype=torch.int64))
        with pytest.raises(ValueError, match="batch_dims"):
            call(torch.tanh, torch.ones(4), batch_dims=2)
        with pytest.raises(sg.SteadyStateError, match="in place"):
            call(lambda h: h.mul_(2), torch.ones(4))
        with pytest.raises(sg.SteadyStateError, match="no_grad"), torch.inference_mode():
            call(torch.tanh, torch.ones(4))
        with pytest.raises(sg.SteadyStateError, match=r"torch\.func"):
            torch.func.grad(lambda h: call(torch.tanh, h))(torch.ones(4))

    @pytest.mark.parametrize(
        "call, message",
        [
            (lambda f, h: penalty.column_l1(f, h, eta=1.0), "0 <= eta < 1"),
            (lambda f, h: penalty.column_l1(f, h, eta=math.nan), "0 <= eta < 1"),
            (lambda f, h: penalty.column_l1(f, h, over="min"), '"max" or "mean"'),
            (lambda f, h: penalty.column_l1(f, h, columns=0), "columns must be at least 1"),
            (lambda f, h: penalty.gershgorin(f, h, samples=0), "samples must be at least 1"),
            (lambda f, h: penalty.frobenius(f, h, samples=0), "samples must be at least 1"),
            (lambda f, h: penalty.lanczos(f, h, steps=0), "steps must be at least 1"),
            (lambda f, h: penalty.spectral(f, h, steps=-1), "steps must be at least 1"),
            (lambda f, h: penalty.spectral(f, h, seed=-1), "seed must be at least 0"),
        ],
    )
    def test_settings(self, call, message):
        with pytest.raises(ValueError, match=message):
            call(torch.tanh, torch.ones(4))

    def test_counts_are_whole_numbers(self):
        with pytest.raises(TypeError, match="steps must be a whole number"):
            penalty.lanczos(torch.tanh, torch.ones(4), steps=2.5)
        with pytest.raises(TypeError, match="seed must be a whole number"):
            penalty.frobenius(torch.tanh, torch.ones(4), seed=None)


class TestRepair:
    """Gradient descent on a penalty alone mends a network whose assumptions fail."""

    @staticmethod
    def descend(call, W, rate, steps):
        x, h = seeded_normal(12, seed=5), 0.3 * seeded_normal(12, seed=6)
        update = partial(nonlinear_plain, W, x)
        before = torch.autograd.functional.jacobian(update, h)
        for step in range(steps):
            (grad,) = torch.autograd.grad(call(update, h, step), W)
            with torch.no_grad():
                W -= rate * grad
        return before, torch.autograd.functional.jacobian(update, h)

    @pytest.mark.parametrize(
        "call, rate",
        [
            (lambda f, h, s: penalty.column_l1(f, h, eta=0.8), 0.02),
            (lambda f, h, s: penalty.column_l1(f, h, eta=0.8, hinge=True, columns=3, seed=s), 0.02),
            (lambda f, h, s: penalty.frobenius(f, h, seed=s), 0.02),
            (lambda f, h, s: torch.relu(penalty.spectral(f, h, steps=5, seed=s) - 0.9), 0.05),
        ],
        ids=["column_l1", "column_l1 drawn", "frobenius", "spectral"],
    )
    def test_radius_falls_below_one(self, call, rate):
        W = (seeded_normal(12, 12, seed=4) * 0.9).requires_grad_()
        before, after = (torch.linalg.eigvals(J).abs().max() for J in self.descend(call, W, rate, 150))
        assert before > 1.3
        assert after < 1

    @pytest.mark.parametrize(
        "call, rate",
        [
            (lambda f, h, s: penalty.gershgorin(f, h), 0.006),
            (lambda f, h, s: penalty.gershgorin(f, h, samples=2, seed=s), 0.006),
            (lambda f, h, s: torch.relu(0.25 + penalty.lanczos(f, h, steps=12, seed=s)), 0.1),
            (lambda f, h, s: torch.relu(0.25 + penalty.lanczos(f, h, steps=12, through=False, seed=s)), 0.1),
        ],
        ids=["gershgorin", "gershgorin drawn", "lanczos", "lanczos fixed"],
    )
    def test_i_minus_j_becomes_well_conditioned(self, call, rate):
        x, h = seeded_normal(12, seed=5), 0.3 * seeded_normal(12, seed=6)
        W = seeded_normal(12, 12, seed=4) * 0.6
        for _ in range(30):  # move it until I − J is nearly singular
            slopes = 1 - torch.tanh(W @ h + x) ** 2
            U, S, V = torch.linalg.svd(torch.eye(12).double() - slopes[:, None] * W)
            W = W + 0.5 * (S[-1] - 0.02) * torch.outer(U[:, -1], V[-1]) / slopes[:, None]
        before, after = (
            torch.linalg.svdvals(torch.eye(12).double() - J) for J in self.descend(call, W.requires_grad_(), rate, 60)
        )
        assert before[-1] < 0.05
        assert after[-1] > 0.4
        assert after[0] / after[-1] < 0.2 * before[0] / before[-1]
