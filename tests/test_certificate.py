"""The certificate that every backward pass leaves behind, and what happens when it is bad."""

import copy
import gc
import pickle
import warnings
import weakref

import pytest
import torch
from torch import nn

import steadygrad as sg
from problems import Affine, adjoint_of, matrix, relative, tanh_problem, true_residual
from steadygrad.state.shards import Shards, sharing

METHODS = ["auto", "rbp", "cg-rbp", "lsqr", "gmres", "bicgstab", "neumann-rbp", "one-step", "dense"]
TIGHT = sg.Picard(max_steps=20_000, rtol=1e-13)


def jacobian_at(F, h):
    """J by torch's own reverse mode, row by row."""
    J = torch.autograd.functional.jacobian(F, h.detach())
    return J.reshape(h.numel(), h.numel())


def backward_by_loss(solution, W):
    solution.value.square().sum().backward()


def backward_by_grad(solution, W):
    torch.autograd.grad(solution.value.square().sum(), W)


@pytest.mark.parametrize("backward", [backward_by_loss, backward_by_grad])
@pytest.mark.parametrize("gradient", METHODS)
def test_residual_and_error_are_true(gradient, backward):
    F, W, _, h0 = tanh_problem(gain=1.2)
    solution = sg.steady_state(F, h0, forward=TIGHT, gradient=gradient)
    assert solution.adjoint is None
    backward(solution, W)
    adjoint = solution.adjoint
    J = jacobian_at(F, solution.value)
    b = 2 * solution.value.detach().reshape(1, -1)
    z = captured_adjoint(gradient, F, h0)
    assert adjoint.residual == pytest.approx(true_residual(J, z, b), rel=1e-6, abs=1e-14)
    error = relative(z, adjoint_of(J, b))
    assert adjoint.error_estimate < 1e-13 or error / 10 < adjoint.error_estimate < 10 * error


def captured_adjoint(gradient, F, h0):
    """z itself: the gradient with respect to something added to F."""
    c = torch.zeros_like(h0).requires_grad_()
    value = sg.steady_state(lambda h: F(h) + c, h0, forward=TIGHT, gradient=gradient).value
    return torch.autograd.grad(value.square().sum(), c)[0].reshape(1, -1)


@pytest.mark.parametrize(("gradient", "products"), [("neumann-rbp", 21), ("one-step", 1), ("dense", 37)])
def test_products(gradient, products):
    F, W, _, h0 = tanh_problem()
    solution = sg.steady_state(F, h0, gradient=gradient)
    backward_by_grad(solution, W)
    assert solution.adjoint.products == products


def test_solver_pastes_back():
    F, W, _, h0 = tanh_problem()
    solution = sg.steady_state(F, h0, gradient=sg.Implicit(sg.NormalCG(steps=7, ridge=1e-5)))
    backward_by_grad(solution, W)
    assert eval(solution.adjoint.solver, vars(sg)) == sg.NormalCG(steps=7, ridge=1e-5)


@pytest.mark.parametrize("gradient", ["bptt", "tbptt", "artbp"])
def test_unrolled_gradients_have_no_adjoint(gradient):
    F, W, _, h0 = tanh_problem()
    solution = sg.steady_state(F, h0, gradient=gradient)
    backward_by_grad(solution, W)
    assert solution.adjoint is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gradient", METHODS)
@pytest.mark.parametrize("gain", [0.3, 0.9, 1.1])
def test_no_false_alarms(gradient, gain, dtype):
    """A converged solve warns of nothing; pytest turns warnings into errors."""
    for seed in range(5):
        F, W, _, h0 = tanh_problem(size=30, gain=gain, seed=seed, dtype=dtype)
        solution = sg.steady_state(F, h0, forward=sg.Picard(max_steps=1000), gradient=gradient, on_failure="raise")
        backward_by_grad(solution, W)
        assert solution.converged


class TestBeyondContractions:
    """ρ(J) = 1.5 with I − J invertible, started at the steady state."""

    def solve(self, gradient, **options):
        problem = Affine.of("rotation", 1.5)
        b = torch.randn(20, dtype=torch.float64)
        solution = sg.steady_state(
            problem, problem.steady(), forward=sg.Picard(max_steps=1, rtol=0), gradient=gradient, **options
        )
        grads = torch.autograd.grad(solution.value @ b, (problem.J, problem.c))
        return solution.adjoint, max(relative(g, e) for g, e in zip(grads, problem.gradients(b), strict=True))

    @pytest.mark.parametrize("gradient", ["cg-rbp", "lsqr", "gmres", "dense", "auto"])
    def test_krylov_methods_are_right(self, gradient):
        adjoint, error = self.solve(gradient)
        assert adjoint.converged
        assert error < 1e-8

    @pytest.mark.parametrize("gradient", ["neumann-rbp", "rbp"])
    def test_series_report_divergence(self, gradient):
        with pytest.warns(sg.SteadyStateWarning, match="DIVERGED.*cg-rbp"):
            adjoint, error = self.solve(gradient)
        assert adjoint.status is sg.Status.DIVERGED
        assert error > 0.5

    def test_policies(self):
        with pytest.raises(sg.SteadyStateError, match="DIVERGED"):
            self.solve("neumann-rbp", on_failure="raise")
        adjoint, _ = self.solve("neumann-rbp", on_failure="ignore")
        assert adjoint.status is sg.Status.DIVERGED


@pytest.mark.parametrize("gradient", ["cg-rbp", "dense", "auto"])
def test_nearly_singular_is_reported(gradient):
    J = matrix("symmetric", 0.9)
    values, vectors = torch.linalg.eigh(J)
    values[-1] = 1 - 1e-13
    J = (vectors @ torch.diag(values) @ vectors.T).requires_grad_()
    with pytest.warns(sg.SteadyStateWarning, match="nearly singular|Raise max_steps"):
        solution = sg.steady_state(
            lambda h: J @ h, torch.zeros(20).double(), forward=sg.Picard(max_steps=1, rtol=0), gradient=gradient
        )
        solution.value.sum().backward()
    assert not solution.adjoint.converged
    assert J.grad.isfinite().all()


def test_too_few_steps_is_reported_but_an_exact_count_is_not():
    F, W, _, h0 = tanh_problem()
    with pytest.warns(sg.SteadyStateWarning, match="MAX_STEPS.*Raise max_steps"):
        solution = sg.steady_state(F, h0, gradient=sg.Implicit(sg.Neumann(max_steps=3)))
        backward_by_grad(solution, W)
    solution = sg.steady_state(F, h0, gradient=sg.Implicit(sg.Neumann(steps=4)))
    backward_by_grad(solution, W)
    assert solution.adjoint.status is sg.Status.MAX_STEPS


def test_warning_points_at_the_user():
    F, W, _, h0 = tanh_problem()
    solution = sg.steady_state(F, h0, gradient=sg.Implicit(sg.Neumann(max_steps=2)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution.value.sum().backward()
        sg.steady_state(F, h0, forward=sg.Picard(max_steps=2))
    assert [w.filename for w in caught] == [__file__, __file__]


def test_loss_that_does_not_depend_on_the_state():
    F, W, _, h0 = tanh_problem()
    solution = sg.steady_state(F, h0)
    (0 * solution.value.sum()).backward()
    assert W.grad.count_nonzero() == 0
    assert solution.adjoint.converged
    assert solution.adjoint.residual == 0
    assert solution.adjoint.products == 0


def test_detached_path_is_found():
    """The certificate cannot see it, but a J that is structurally zero while F moved gives it away."""
    _, W, x, h0 = tanh_problem()
    solution = sg.steady_state(lambda h: torch.tanh(h.detach() @ W.T + x), h0)
    with pytest.warns(sg.SteadyStateWarning, match="no path from the state"):
        solution.value.sum().backward()
    assert solution.adjoint.residual == 0


def test_solution_without_graph_can_be_copied():
    layer = sg.Equilibrium(nn.GRUCell(3, 4))
    layer(torch.zeros(2, 3)).sum().backward()
    assert copy.deepcopy(layer.solution).adjoint == layer.solution.adjoint


def test_nothing_holds_the_graph_in_a_cycle():
    F, W, _, h0 = tanh_problem()
    gc.disable()
    try:
        solution = sg.steady_state(F, h0)
        solution.value.sum().backward()
        value = weakref.ref(solution.value)
        del solution
        assert value() is None
    finally:
        gc.enable()


def test_printed_it_says_how_good_the_gradient_is():
    w = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    solution = sg.steady_state(
        lambda h: w * h + 1, torch.zeros(1, dtype=torch.float64), gradient=sg.Implicit(sg.Neumann(steps=4))
    )
    solution.value.sum().backward()
    # z = 1 + ½ + ¼ + ⅛ + 1⁄16 of 2: a 32nd is left out, which is the residual too.
    text = "MAX_STEPS after 5 products by Neumann(steps=4): residual 3.1e-02, estimated error 3.1e-02"
    assert str(solution.adjoint) == text
    assert text not in repr(solution)


def counted_series():
    """A gradient by few terms, whose estimate waits to be asked for; and its cotangent."""
    W = 0.6 * torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)))[0]
    x = torch.ones(8, requires_grad=True)
    solution = sg.steady_state(lambda h: torch.tanh(h @ W.T + x), torch.zeros(8), gradient=sg.Implicit(sg.Neumann(steps=4)))
    b = torch.linspace(-1, 1, 8)
    torch.autograd.grad(solution.value, x, b)
    return solution.adjoint, b


class TestAnEstimateThatWaitsIsTheSame:
    def test_after_the_cotangent_has_changed(self):
        (asked, _), (adjoint, b) = counted_series(), counted_series()
        expected = asked.error_estimate
        b.zero_()
        assert adjoint.error_estimate == expected > 0

    def test_inside_a_solve_that_is_divided_over_ranks(self):
        (asked, _), (adjoint, _) = counted_series(), counted_series()
        with sharing(Shards(None, 16, torch.device("cpu"))):  # any exchange would fail
            assert adjoint.error_estimate == asked.error_estimate

    def test_of_a_copy_which_holds_no_vectors(self):
        adjoint, _ = counted_series()
        stored = pickle.dumps(adjoint)
        assert b"torch" not in stored
        assert pickle.loads(stored).error_estimate == adjoint.error_estimate
