"""Penalties in use: states of all shapes, modes of torch, bad input, and that they repair what they are for."""

import math
from functools import partial

import pytest
import torch

import steadygrad as sg
from penalties import CALLS, DENSE, EVERY, EXACT, NAMES, nonlinear, nonlinear_plain, seeded_normal
from problems import matrix, tanh_problem
from steadygrad import penalty


@EVERY
def test_a_superattracting_state_has_second_derivatives(call):
    """Heron's root: J is zero by cancellation, and what is left of Jv and Jᵀu are rounding errors, which differ."""
    for seed in range(8):
        a = (0.05 + seeded_normal(4, seed=seed).abs()).requires_grad_()
        assert call(lambda h, a=a: 0.5 * (h + a / h), a.detach().sqrt()).isfinite()


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

    @pytest.mark.parametrize("name", [n for n in CALLS if n not in ("column_l1", "frobenius", "frobenius drawn", "gershgorin")])
    def test_warns_where_a_second_derivative_would_lack_a_part(self, name):
        W, x, h = seeded_normal(5, 5).requires_grad_(), seeded_normal(5, seed=1), seeded_normal(5, seed=2)
        value = CALLS[name](lambda h: nonlinear(W, x, h), h)
        with pytest.warns(sg.SteadyStateWarning, match="differentiated again"):
            torch.autograd.grad(value, W, create_graph=True)


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
            (lambda f, h: penalty.frobenius(f, h, over="max"), '"mean"'),
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
            (lambda f, h, s: penalty.frobenius(f, h, seed=s), 0.24),
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
