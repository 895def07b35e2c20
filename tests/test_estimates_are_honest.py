"""Error estimates lie near the error, and what fails or is biased says so."""

import numpy
import pytest
import torch

import steadygrad as sg
from problems import DenseMap, adjoint_of, matrix, relative
from steadygrad.iteration.error import extrapolated
from steadygrad.linear import Recurrence


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


def test_changes_too_small_to_be_squared_are_no_error():
    """A row that has come to rest beside others that have not: its last changes, 15 digits apart, underflow in the square."""
    left = torch.tensor([4e-100, 8e-115, 7e-130, -4.5e-145, -5e-160, 3e-175], dtype=torch.float64)
    pairs = [
        (torch.full((1, 2), 1.0 + i, dtype=torch.float64), torch.full((1, 2), r, dtype=torch.float64))
        for i, r in enumerate(left.tolist())
    ]
    gain, whole = extrapolated(pairs)()
    assert numpy.isfinite(gain).all()
    assert whole is not None
    assert numpy.isfinite(whole).all()
