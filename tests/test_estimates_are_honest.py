"""Error estimates lie near the error, and what fails or is biased says so."""

import warnings
from functools import partial

import numpy
import pytest
import torch
from benchmarks.families import affine, matrices

import steadygrad as sg
from problems import DenseMap, adjoint_of, matrix, relative
from steadygrad.iteration.gain import _gain_of_one_series, _gains, _gains_of_series, extrapolated, gains, known
from steadygrad.linear import Recurrence, certify
from steadygrad.linear.system import System


@pytest.mark.parametrize("damping", [0.5, 0.9, 0.95])
def test_error_estimate_of_damped_rbp(damping):
    J = matrix("random", 0.5)
    b = torch.randn(1, 20, dtype=torch.float64)
    solved = Recurrence(sg.Picard(5000, 1e-5, damping=damping)).solve(DenseMap(J), b)
    error = relative(solved.z, adjoint_of(J, b))
    assert error / 10 < solved.error[0] < 10 * error


def test_error_estimate_of_a_cyclic_shift():
    """Five modes of the same modulus."""
    J = 0.99 * torch.roll(torch.eye(5, dtype=torch.float64), 1, 0)
    b = torch.eye(5, dtype=torch.float64)[:1]
    for solver in (sg.Neumann(steps=100), sg.Neumann(rtol=1e-3, max_steps=2000)):
        solved = solver.solve(DenseMap(J), b)
        error = relative(solved.z, adjoint_of(J, b))
        assert error / 10 < solved.error[0] < 10 * error


def test_error_estimate_of_the_best_iterate_of_a_failed_solve():
    J = matrix("random", 0.9, size=10, seed=1)
    b = torch.eye(10, dtype=torch.float64)[:1]
    for steps in (10, 11, 15, 16):
        solved = sg.Neumann(max_steps=steps).solve(DenseMap(J), b)
        error = relative(solved.z, adjoint_of(J, b))
        assert error / 10 < solved.error[0] < 10 * error


def test_cg_count_beyond_exact_convergence():
    W = torch.randn(5, requires_grad=True)
    for solver in (sg.NormalCG(steps=5), sg.LSQR(steps=5), sg.BiCGSTAB(steps=5), sg.GMRES(steps=5)):
        value = sg.steady_state(lambda h: 0.5 * h + W, torch.zeros(5), gradient=sg.Implicit(solver)).value
        (grad,) = torch.autograd.grad(value.sum(), W)
        assert torch.allclose(grad, torch.full((5,), 2.0))


def test_ridge_on_a_nearly_singular_system_is_finite_and_honest():
    D = torch.tensor([0.5, 0.1, 0.9999999], dtype=torch.float64)
    b = torch.ones(1, 3, dtype=torch.float64)
    solved = sg.NormalCG(ridge=1e-3).solve(DenseMap(torch.diag(D)), b)
    assert solved.z.isfinite().all()
    assert solved.status[0] is not sg.Status.NONFINITE
    assert solved.residual[0] > 0.1  # the bias shows


@pytest.mark.parametrize("solver", [sg.Auto(), sg.GMRES(), sg.LSQR(), sg.BiCGSTAB()], ids=repr)
def test_no_second_run_for_what_the_rounding_of_z_adds_to_a_residual(solver, monkeypatch):
    """‖z‖ is 33 ‖b‖: in float32 two roundings of z are a residual of 8e-6, beside a tolerance of 1e-5."""
    problem = affine(matrices(64)["nearly singular"], rows=32)
    monkeypatch.setattr(certify, "_again", None)
    z, adjoint = problem.solve(solver)
    assert adjoint.converged
    assert adjoint.residual < 1.5e-5
    assert problem.error(z) < 1e-5


@pytest.mark.parametrize("solver", [sg.Auto(), sg.Auto(dear=True), sg.GMRES(), sg.LSQR(), sg.BiCGSTAB()], ids=repr)
def test_what_the_rounding_of_j_does_to_a_nearly_singular_system_is_estimated(solver):
    """One eigenvalue of J lies at 1 − 1e-3, of an eigenbasis that is not orthogonal: residuals end at 1e-4 in float32."""
    problem = affine(matrices(128)["nearly singular"], rows=64)
    z, adjoint = problem.solve(solver)
    by_rounding = torch.finfo(torch.float32).eps * float(z.norm() / problem.b.norm())  # which may have spared it
    assert adjoint.converged
    assert problem.error(z) / 10 < adjoint.error_estimate < 10 * max(problem.error(z), by_rounding)


def test_changes_too_small_to_be_squared_are_no_error():
    """A row at rest beside others that are not: its last changes are so small that their squares have no digits left."""
    changes = numpy.array([3.997214e-100, -2.457843e-115, -7.398e-130, 4.524118e-145, 4.974957e-160])
    gram = numpy.zeros((1, 12, 12))
    gram[0, :5, :5] = 1e-30 * numpy.eye(5)
    gram[0, 5:10, 5:10] = numpy.outer(changes, changes)
    gram[0, 10, 10], gram[0, 11, 11] = 1e-300, 1.0
    gain, whole = _gains(gram)
    assert numpy.isfinite(gain).all()
    assert numpy.isfinite(whole).all()


def series_of(generator, problems, terms, radius=0.7):
    """Inner products of the last terms of some series, of the next one, and of their sum."""
    J = generator.normal(size=(40, 40))
    J *= radius / abs(numpy.linalg.eigvals(J)).max()
    found = [generator.normal(size=(problems, 40)) * 10.0 ** generator.uniform(-6, 0, size=(problems, 1))]
    while len(found) < terms + 1:
        found.append(found[-1] @ J)
    vectors = numpy.stack([*found, sum(found[:-1])], axis=1)
    return vectors @ vectors.transpose(0, 2, 1)


@pytest.mark.parametrize("count", [1, 3, 6])
@pytest.mark.parametrize("radius", [0.1, 0.7, 0.9999, 1.3])
def test_one_problem_alone_is_estimated_as_it_is_among_others(count, radius):
    """By other operations: those of one problem are written for its speed."""
    known = series_of(numpy.random.default_rng(count), 2, count, radius)
    assert all(_gain_of_one_series(one.tolist()) is not None for one in known)
    together = _gains_of_series(known)
    for i in range(2):
        numpy.testing.assert_allclose(
            numpy.array(_gains_of_series(known[i : i + 1]))[:, 0], numpy.array(together)[:, i], rtol=1e-6
        )


@pytest.mark.parametrize("spoilt", [numpy.nan, numpy.inf, 1e200, 0.0])
def test_numbers_beyond_range_are_left_to_what_can_judge_them(spoilt):
    known = series_of(numpy.random.default_rng(0), 1, 2)
    known[0, 2, 2] = spoilt  # the square of the residual
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _gain_of_one_series(known[0].tolist()) is None
        _gains_of_series(known)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("at_the_end", [True, False])
def test_the_residuals_of_rbp_are_terms_of_a_series(rows, at_the_end):
    """Then half of the vectors tell the error; where a row ended earlier, the true residual is not the next of them."""
    J = matrix("random", 0.9, size=30)
    solver, system = Recurrence(sg.Picard()), System(DenseMap(J), torch.randn(rows, 30, dtype=J.dtype))
    state = solver.init(system, torch.rand(rows, 30, dtype=J.dtype))
    recent = []
    for _ in range(25):
        state = solver.step(system, state)
        recent = [*recent[-5:], state]
    z = solver.value(state if at_the_end else recent[1])
    r = system(z) - z
    chained, points = gains(solver, recent, (z, r)).values()[0], extrapolated([*known(solver, recent), (z, r)]).values()[0]
    exact = (z - adjoint_of(J, system.b)).norm(dim=1) / r.norm(dim=1)
    for gain in (chained, points):
        assert ((exact.numpy() / 3 < gain) & (gain < 3 * exact.numpy())).all()


def far_apart(dtype):
    """Two problems, of which one is done, loosely, hundreds of steps before the other, which goes to and fro."""
    A = torch.diag_embed(torch.tensor([[0.97] + 7 * [0.3], [-0.9995] + 7 * [0.3]], dtype=dtype))
    x, b = torch.randn(2, 8, dtype=dtype, requires_grad=True), torch.ones(2, 8, dtype=dtype)
    b[:, 0] = 0.2
    exact = torch.linalg.solve(torch.eye(8, dtype=torch.float64) - A.double().mT, b.double().unsqueeze(2)).squeeze(2)
    return A, x, b, exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_that_ended_long_before_the_others_is_estimated_where_it_ended(dtype):
    A, x, b, exact = far_apart(dtype)
    rbp = sg.Implicit(sg.Picard(rtol=5e-3, max_steps=20_000))
    solution = sg.steady_state(
        lambda h: (A @ h.unsqueeze(-1)).squeeze(-1) + x,
        torch.zeros(2, 8, dtype=dtype),
        batch_dims=1,
        forward=sg.Newton(),
        gradient=rbp,
    )
    with pytest.warns(sg.SteadyStateWarning, match="STAGNATED"):
        (z,) = torch.autograd.grad(solution.value, x, b)
    true = (z.double() - exact).norm(dim=1) / exact.norm(dim=1)
    assert true[0] > 0.04
    assert solution.adjoint.error_estimate == pytest.approx(true.max().item(), rel=0.1)


@pytest.mark.parametrize("solver", [sg.Picard(rtol=0, max_steps=12), sg.Neumann(steps=11)], ids=repr)
def test_the_estimate_of_a_count_is_not_that_of_a_gradient_that_was_changed_since(solver):
    """The gradient of x is z itself."""
    Q = 0.6 * torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]
    x = torch.zeros(6, dtype=torch.float64, requires_grad=True)

    def estimate(factor):
        solution = sg.steady_state(lambda h: h @ Q + x, torch.zeros_like(x), gradient=sg.Implicit(solver))
        (z,) = torch.autograd.grad(solution.value.sum(), x)
        z.mul_(factor)
        return solution.adjoint.error_estimate

    assert estimate(1000.0) == estimate(1.0)


def test_a_subclass_of_picard_may_take_other_steps():
    class Relaxed(sg.Picard):
        def step(self, problem, state):
            return state._replace(h=0.3 * problem(state.h) + 0.7 * state.h, before=state.h)

        def residual(self, state):
            return None if state.before is None else (state.h - state.before) / 0.3

    J = matrix("symmetric", 0.9)
    b = torch.randn(1, 20, dtype=J.dtype)
    found, damped = (Recurrence(m(rtol=1e-2)).solve(DenseMap(J), b) for m in (Relaxed, partial(sg.Picard, damping=0.7)))
    assert found.error == pytest.approx(damped.error, rel=1e-6)
