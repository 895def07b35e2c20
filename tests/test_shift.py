"""What the state's own distance does to the gradient: where that is more than one per cent, the backward pass says so."""

import pytest
import torch
from torch import nn

import steadygrad as sg
from problems import relative

F64 = torch.float64
SHIFTS = "gradient is not: on the way that is left"
LONG = sg.Picard(max_steps=10_000, rtol=1e-13)


def small_differences(rows=1):
    """F acts through w on h − mean(h), which is a hundredth of h: an error of h of 1e-3 is one of ten per cent there."""
    generator = torch.Generator().manual_seed(0)
    x = 1 + 0.01 * torch.randn(rows, 6, generator=generator, dtype=F64)
    w = torch.full((6,), 0.03, dtype=F64, requires_grad=True)
    start = 1 + torch.randn(rows, 6, generator=generator, dtype=F64)
    return lambda h: 0.8 * h + 0.2 * x + w * (h - h.mean(-1, keepdim=True)), w, start


def fast_derivative(rows=1):
    """J = 0.5 + 0.3·cos(40·h) turns over while h changes by less than a tenth."""
    w = torch.tensor([0.2, 0.26, 0.16], dtype=F64).repeat(rows, 1).requires_grad_()
    return lambda h: w + 0.3 * torch.sin(40 * h) / 40 + 0.5 * h, w, torch.zeros(rows, 3, dtype=F64)


PROBLEMS = [small_differences, fast_derivative]


def gradient_of(update, w, start, **options):
    solution = sg.steady_state(update, start, **options)
    b = torch.linspace(-1, 2, start.numel(), dtype=start.dtype).view(start.shape)
    return torch.autograd.grad((solution.value * b).sum(), w)[0], solution


class TestWarns:
    @pytest.mark.parametrize("batch_dims", [0, 1])
    @pytest.mark.parametrize("forward", [sg.Picard(rtol=1e-3), sg.Anderson(rtol=1e-3, history=1)], ids=repr)
    @pytest.mark.parametrize("problem", PROBLEMS)
    def test_and_tells_by_how_much(self, problem, forward, batch_dims):
        update, w, start = problem(rows=3)
        exact, _ = gradient_of(update, w, start, forward=LONG, batch_dims=batch_dims)
        with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
            found, solution = gradient_of(update, w, start, forward=forward, batch_dims=batch_dims)
        assert solution.status is sg.Status.CONVERGED
        off = relative(found, exact)
        assert off > 0.01
        assert off / 2 < solution.adjoint.shift < 2 * off

    @pytest.mark.parametrize("problem", PROBLEMS)
    @pytest.mark.parametrize("gradient", ["rbp", "cg-rbp", "dense", sg.Implicit(sg.Neumann())], ids=str)
    def test_whatever_solves_the_adjoint(self, problem, gradient):
        update, w, start = problem()
        with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
            gradient_of(update, w, start, forward=sg.Picard(rtol=1e-3), gradient=gradient)

    def test_with_second_derivatives_too(self):
        update, w, start = fast_derivative()
        with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
            gradient_of(update, w, start, forward=sg.Picard(rtol=1e-3), derivatives=2)

    def test_of_leaves_in_different_units(self):
        update, w, start = fast_derivative()

        def both(h):
            return {"a": update(h["a"]), "b": 0.5 * h["b"] + 1e6 * w}

        with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
            h = sg.steady_state(both, {"a": start, "b": 0 * start}, forward=sg.Picard(rtol=1e-3)).value
            torch.autograd.grad(h["a"].sum(), w)

    def test_raises_where_failures_do(self):
        update, w, start = fast_derivative()
        with pytest.raises(sg.SteadyStateError, match=SHIFTS):
            gradient_of(update, w, start, forward=sg.Picard(rtol=1e-3), on_failure="raise")

    def test_of_an_update_without_a_second_derivative(self):
        """Products with J are not to be had: then the last step tells where the state is going."""
        update, w, start = fast_derivative()
        with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
            gradient_of(lambda h: Once.apply(update(h)), w, start, forward=sg.Picard(rtol=1e-3))


class Once(torch.autograd.Function):
    """The identity, differentiable once."""

    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, b):
        return b.clone()


class TestNumbersOfVeryDifferentSizesInOneLeaf:
    """A leaf is measured by its norm, which says nothing of its small numbers; the gradients that act on them are looked at."""

    def test_of_a_reaction_with_a_rare_species(self):
        """b ≈ 3e-5 beside a ≈ 1: the rate of b² has a gradient that is as far off as b."""
        rate = torch.tensor(3e7, dtype=F64, requires_grad=True)

        def update(h):
            a, b = h.unbind()
            return torch.stack([0.5 * a + 0.5, b - 1e-4 * (rate * b.square() - 0.04 * a)])

        def gradient(forward):
            solution = sg.steady_state(update, torch.tensor([0.9, 1e-5], dtype=F64), forward=forward)
            return torch.autograd.grad(solution.value[1], rate)[0], solution

        with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
            found, solution = gradient(sg.Picard(rtol=1e-4))
        assert solution.error_estimate < 0.01
        assert relative(found, gradient(sg.Picard(max_steps=10_000, rtol=1e-14))[0]) > 0.05

    @pytest.mark.parametrize(("share", "rtol"), [(1.0, 1e-4), (1e-3, 1e-6)])
    def test_of_mutants_with_small_shares(self, share, rtol):
        """Shares of 1e-3 and less, which a change of all by a tenth of the largest would make a hundred times larger.

        With shares of 1e-7 the state is so near that nobody would look, were it not for the numbers that still move.
        """
        fitness = torch.tensor([1.0, 0.5, 0.4, 0.2], dtype=F64, requires_grad=True)
        mutation = share * torch.tensor([1e-3, 1e-4, 2e-4, 1e-4], dtype=F64)

        def update(h):
            grown = h * fitness.exp()
            mixed = grown + mutation * grown.sum()
            return mixed / mixed.sum()

        def gradient(forward):
            solution = sg.steady_state(update, torch.full((4,), 0.25, dtype=F64), forward=forward)
            return torch.autograd.grad(solution.value[1:].sum(), fitness)[0], solution

        with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
            found, solution = gradient(sg.Picard(rtol=rtol))
        off = relative(found, gradient(LONG)[0])
        assert off > 0.01
        assert off / 3 < solution.adjoint.shift < 3 * off


class TestLooksAlso:
    def test_with_an_absolute_tolerance(self):
        update, w, start = fast_derivative()
        with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
            gradient_of(update, w, start, forward=sg.Picard(rtol=1e-3, atol=1e-9))

    @pytest.mark.parametrize(("failing", "rtol"), [("slow", 1e-2), ("nowhere", 1e-3)])
    def test_at_the_problems_that_did_succeed(self, failing, rtol):
        """One problem has too far to go, or no finite state; the others are said to be steady, and their gradient is off."""
        update, w, start = fast_derivative(rows=3)
        spoilt = {"slow": lambda h: h - 1e-4 * (h - 5), "nowhere": lambda h: torch.exp(h + 9) + 1}[failing]

        def some(h):
            return torch.cat([update(h)[:2], spoilt(h[2:])])

        with pytest.warns(sg.SteadyStateWarning, match="1 of 3|" + SHIFTS) as caught:
            solution = sg.steady_state(some, start + 1e-3, forward=sg.Picard(rtol=rtol), batch_dims=1)
            assert solution.status is not sg.Status.CONVERGED
            (found,) = torch.autograd.grad(solution.value[:2].sum(), w)
        assert any(SHIFTS in str(warning.message) for warning in caught)
        exact = sg.steady_state(update, start, forward=LONG, batch_dims=1).value[:2].sum()
        off = relative(found, torch.autograd.grad(exact, w)[0])
        assert off / 2 < solution.adjoint.shift < 2 * off

    def test_at_the_problems_whose_adjoint_was_found(self):
        update, w, start = fast_derivative(rows=2)
        sixty = sg.Implicit(sg.Neumann(max_steps=60, rtol=1e-4))

        def both(h):  # the second is steady from the start, and its adjoint needs a thousand products
            return torch.cat([update(h)[:1], h[1:] + 0.01 * (1e-3 * w[1:] / w[1:] - h[1:])])

        with pytest.warns(sg.SteadyStateWarning, match="adjoint solve|" + SHIFTS) as caught:
            solution = sg.steady_state(both, start + 1e-3, forward=sg.Picard(rtol=1e-3), gradient=sixty, batch_dims=1)
            assert solution.status is sg.Status.CONVERGED
            torch.autograd.grad(solution.value.sum(), w)
        assert any(SHIFTS in str(warning.message) for warning in caught)

    @pytest.mark.parametrize("batch_dims", [0, 1])
    def test_at_several_cotangents_and_shows_the_worst(self, batch_dims):
        update, w, start = fast_derivative(rows=3)
        solution = sg.steady_state(update, start, forward=sg.Picard(rtol=1e-3), batch_dims=batch_dims)
        b = torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
        shifts = []
        for each in b:
            with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
                torch.autograd.grad(solution.value, w, each, retain_graph=True)
            shifts.append(solution.adjoint.shift)
        with pytest.warns(sg.SteadyStateWarning, match=SHIFTS):
            torch.autograd.grad(solution.value, w, b, is_grads_batched=True)
        assert solution.adjoint.shift == pytest.approx(max(shifts), rel=1e-3)
        assert max(shifts) > 1.05 * min(shifts)


class TestSaysNothing:
    @pytest.mark.parametrize("problem", PROBLEMS)
    def test_where_the_state_is_near(self, problem):
        update, w, start = problem()
        found, solution = gradient_of(update, w, start, forward=sg.Picard(max_steps=1000, rtol=1e-8))
        assert relative(found, gradient_of(update, w, start, forward=LONG)[0]) < 1e-3
        assert solution.adjoint.shift is None

    def test_and_evaluates_nothing_where_the_state_is_near(self):
        calls = []
        update, w, start = fast_derivative()
        solution = sg.steady_state(lambda h: calls.append(0) or update(h), start, forward=sg.Picard(max_steps=1000, rtol=1e-8))
        before = len(calls)
        solution.value.sum().backward()
        assert len(calls) == before

    def test_where_it_was_not_asked_for(self):
        """The cheap part of the certificate stays; nothing is evaluated for the rest."""
        calls = []
        update, w, start = fast_derivative()
        forward, gradient = sg.Picard(rtol=1e-3), sg.Implicit(sg.Auto(rtol=1e-2), check=False)
        _, solution = gradient_of(lambda h: calls.append(0) or update(h), w, start, forward=forward, gradient=gradient)
        assert solution.adjoint.shift is None
        assert solution.adjoint.gradient_error is None
        assert solution.adjoint.converged
        assert solution.adjoint.remaining != 0
        assert len(calls) == solution.steps + 1
        assert repr(gradient) == "Implicit(Auto(rtol=0.01), check=False)"

    def test_check_is_a_bool(self):
        with pytest.raises(TypeError, match="check must be True or False; got 'no'"):
            sg.Implicit(sg.Auto(), check="no")

    def test_where_failures_are_ignored_but_shows_it(self):
        update, w, start = fast_derivative()
        _, solution = gradient_of(update, w, start, forward=sg.Picard(rtol=1e-3), on_failure="ignore")
        assert solution.adjoint.shift > 0.01

    @pytest.mark.parametrize("radius", [0.5, 0.9, 0.99])
    def test_of_a_linear_map_that_is_near(self, radius):
        """The gradient of the weights is as near as the state."""
        generator = torch.Generator().manual_seed(0)
        W = (radius * torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=F64))[0]).requires_grad_()
        x = torch.randn(8, generator=generator, dtype=F64)
        solution = sg.steady_state(lambda h: h @ W.T + x, torch.zeros(8, dtype=F64), forward=sg.Picard(max_steps=3000, rtol=1e-4))
        solution.value.sum().backward()
        far = relative(solution.value, torch.linalg.solve(torch.eye(8, dtype=F64) - W, x))
        assert solution.adjoint.shift == pytest.approx(far, rel=1) or solution.error_estimate < 1e-4

    def test_of_gates_on_which_a_steady_state_does_not_depend(self):
        """h = (1 − u)·n + u·h for any u: the gradient of u is zero at the end, and all of it changes on the way there."""
        torch.manual_seed(0)
        layer = sg.Equilibrium(nn.GRUCell(4, 8), forward=sg.Picard(max_steps=500, rtol=1e-4)).double()
        layer(torch.randn(5, 4, dtype=F64)).square().sum().backward()
        assert 0 < layer.solution.adjoint.shift < 0.01

    def test_of_a_state_that_rests_at_zero(self):
        w = torch.full((3,), 0.5, dtype=F64, requires_grad=True)
        solution = sg.steady_state(lambda h: w * h, torch.ones(3, dtype=F64), forward=sg.Picard(rtol=1e-3, max_steps=200))
        torch.autograd.grad(solution.value.sum(), w)
        assert solution.converged

    def test_of_what_f_closes_over_having_changed_since(self):
        """F is no longer what it was: there is nothing to compare with, and the gradient is that of the forward pass."""
        update, w, start = small_differences()
        sharp = [1.0]
        solution = sg.steady_state(lambda h: update(h) + (1 - sharp[0]) * w * h, start, forward=sg.Picard(rtol=1e-4))
        sharp[0] = 7.0
        torch.autograd.grad(solution.value.sum(), w)
        assert solution.adjoint.shift != solution.adjoint.shift

    def test_inside_transforms_which_hide_what_f_depends_on(self):
        update, w, start = fast_derivative()
        w.requires_grad_(False)
        solutions = []

        def loss(w):
            solutions.append(sg.steady_state(lambda h: update(h) + w, start, forward=sg.Picard(rtol=1e-3)))
            return solutions[-1].value.sum()

        torch.func.grad(loss)(torch.zeros(3, dtype=F64))
        assert solutions[0].adjoint.shift != solutions[0].adjoint.shift

    def test_of_dropout_which_is_the_same_in_all_calls_of_a_solve(self):
        torch.manual_seed(0)
        W = (0.1 * torch.randn(20, 20, dtype=F64)).requires_grad_()
        x = torch.randn(20, dtype=F64)
        forward = sg.Anderson(rtol=2e-3, max_steps=50)
        solution = sg.steady_state(
            lambda h: nn.functional.dropout(torch.tanh(W @ h + x), 0.3), torch.zeros(20, dtype=F64), forward=forward
        )
        solution.value.sum().backward()
        assert solution.adjoint.shift is None or solution.adjoint.shift < 0.01
