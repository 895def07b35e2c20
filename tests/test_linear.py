"""Every adjoint solver against LU in float64: the solution, the certificate, the counts."""

import math

import pytest
import torch

import steadygrad as sg
from problems import FAMILIES, RADII, DenseMap, adjoint_of, matrix, relative, true_residual
from steadygrad.iteration import gain
from steadygrad.linear import Recurrence

# Those that reach 1e-10 on every family: against dense algebra, with a start, b = 0, NaN, nearly singular systems.
TIGHT = [
    sg.Neumann(max_steps=5000),
    Recurrence(sg.Picard(max_steps=5000, rtol=1e-10)),
    Recurrence(sg.Picard(max_steps=9000, rtol=1e-10, damping=0.3)),
    sg.NormalCG(max_steps=2000),
    sg.LSQR(max_steps=2000),
    sg.GMRES(),
    sg.GMRES(restart=25),
    sg.BiCGSTAB(max_steps=2000),
    sg.Auto(max_steps=2000),
    Recurrence(sg.Anderson(max_steps=2000, rtol=1e-10, history=20)),
    Recurrence(sg.Broyden(max_steps=2000, rtol=1e-10, history=60)),
    sg.Dense(),
]
# Those that end after as many steps as there are numbers.
KRYLOV = [sg.NormalCG(), sg.LSQR(), sg.GMRES(), sg.BiCGSTAB(), sg.Auto()]
# Counts and loose tolerances, whose estimated errors must be right within a factor of ten.
COARSE = [
    *[sg.Neumann(steps=k) for k in (0, 1, 5, 20, 100)],
    *[Recurrence(sg.Picard(max_steps=k, rtol=0)) for k in (1, 5, 20, 100)],
    *[sg.NormalCG(steps=k) for k in (1, 5, 20)],
    *[solver(rtol=t) for solver in (sg.NormalCG, sg.LSQR, sg.GMRES) for t in (1e-3, 1e-4, 1e-7)],
    *[sg.BiCGSTAB(rtol=t) for t in (1e-4, 1e-7)],
    *[solver(steps=k) for solver in (sg.LSQR, sg.GMRES, sg.BiCGSTAB) for k in (1, 10)],
    *[sg.Neumann(rtol=t, max_steps=5000) for t in (1e-2, 1e-4, 1e-7)],
    *[sg.Auto(rtol=t) for t in (1e-3, 1e-4, 1e-7)],
    *[Recurrence(sg.Anderson(rtol=t, max_steps=1000)) for t in (1e-4, 1e-7)],
]


def rhs(size: int = 20, rows: int = 1, seed: int = 7) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("solver", TIGHT, ids=repr)
def test_solution_and_certificate(solver, family, radius):
    J, b = matrix(family, radius), rhs()
    operator = DenseMap(J)
    solved = solver.solve(operator, b)
    exact = adjoint_of(J, b)
    assert solved.status == [sg.Status.CONVERGED]
    assert solved.residual[0] <= 1e-10
    assert solved.residual[0] == pytest.approx(true_residual(J, solved.z, b), rel=1e-3, abs=1e-14)
    assert relative(solved.z, exact) < 1e-10 * torch.linalg.cond(torch.eye(20, dtype=J.dtype) - J)


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("solver", COARSE, ids=repr)
def test_error_estimate_is_within_ten(solver, family, radius):
    for seed in range(3):
        J, b = matrix(family, radius, seed=seed), rhs(seed=seed)
        solved = solver.solve(DenseMap(J), b)
        error = relative(solved.z, adjoint_of(J, b))
        assert solved.residual[0] == pytest.approx(true_residual(J, solved.z, b), rel=1e-4, abs=1e-14)
        if error > 1e-15 * torch.linalg.cond(torch.eye(20, dtype=J.dtype) - J) and error > 1e-9:  # more than rounding
            assert error / 10 < solved.error[0]
            assert solved.error[0] < max(error * 10, 1e-5)  # far below what was asked for, too much is no harm


@pytest.mark.parametrize("seed", range(3))
def test_error_estimate_of_a_random_start(seed):
    J, b = matrix("random", 0.9, seed=seed), rhs(seed=seed)
    z = torch.rand(1, 20, dtype=b.dtype, generator=torch.Generator().manual_seed(seed))
    for steps in (3, 10, 40):
        solved = Recurrence(sg.Picard(max_steps=steps, rtol=0)).solve(DenseMap(J), b, 30 * z)
        error = relative(solved.z, adjoint_of(J, b))
        assert error / 10 < solved.error[0] < error * 10


@pytest.mark.parametrize("solver", [*TIGHT, *COARSE], ids=repr)
def test_zero_right_side_gives_zero(solver):
    solved = solver.solve(DenseMap(matrix("random", 0.9)), torch.zeros(1, 20, dtype=torch.float64))
    assert solved.z.count_nonzero() == 0
    assert solved.residual == [0.0]
    assert solved.error == [0.0]
    assert solved.status == [sg.Status.CONVERGED]


@pytest.mark.parametrize("gradient", ["gmres", "bicgstab", "lsqr", "cg-rbp"])
def test_a_zero_right_side_beside_one_that_is_run_again(gradient):
    """Strongly non-normal, in float32: recurrences lose touch with the true residual and go on from it, the zero row stays."""
    generator = torch.Generator().manual_seed(8)
    above = torch.triu(torch.randn(40, 40, generator=generator), 1)
    J = 0.2 * above + torch.diag(0.9 * (2 * torch.rand(40, generator=generator) - 1))
    b, x = torch.randn(2, 40, generator=generator), torch.zeros(2, 40, requires_grad=True)
    b[1] = 0
    forward = sg.Picard(max_steps=1, rtol=0)
    h = sg.steady_state(
        lambda h, x: h @ J.T + x, b, x, forward=forward, gradient=gradient, batch_dims=1, on_failure="ignore"
    ).value
    (z,) = torch.autograd.grad((h * b).sum(), x)
    assert z[1].count_nonzero() == 0


def test_zero_right_side_ignores_a_start():
    b = torch.zeros(1, 20, dtype=torch.float64)
    assert sg.NormalCG().solve(DenseMap(matrix("random", 0.9)), b, torch.ones_like(b)).z.count_nonzero() == 0


@pytest.mark.parametrize(
    ("solver", "products"),
    [
        (sg.Neumann(steps=20), 21),
        (sg.Neumann(steps=0), 1),
        (Recurrence(sg.Picard(max_steps=20, rtol=0)), 20),  # from zero the first step is b itself
        (sg.NormalCG(steps=10), 1 + 2 * 10 + 1),
        (sg.LSQR(steps=10), 1 + 2 * 10 + 1),
        (sg.GMRES(steps=10), 10 + 1),
        (sg.GMRES(steps=10, restart=4), 10 + 1),
        (sg.BiCGSTAB(steps=10), 2 * 10 + 1),
        (Recurrence(sg.Anderson(max_steps=10, rtol=0)), 10),
        (sg.Dense(), 20 + 1),
    ],
    ids=repr,
)
def test_products_count_j_and_its_transpose_alike(solver, products):
    operator = DenseMap(matrix("random", 0.9))
    solver.solve(operator, rhs())
    assert operator.products == products


def test_cg_keeps_its_last_iterate():
    """The released code of the paper drops it on convergence."""
    J, b = 0.5 * torch.eye(20, dtype=torch.float64), rhs()
    solved = sg.NormalCG().solve(DenseMap(J), b)  # one step solves it
    assert torch.allclose(solved.z, 2 * b, rtol=1e-12)
    assert solved.status == [sg.Status.CONVERGED]


def test_cg_residual_is_that_of_the_paper():
    """K steps of CG minimise ‖b − (I−Jᵀ)z‖ over the Krylov space of (I−J)(I−Jᵀ) and (I−J)b."""
    J, b = matrix("random", 0.9), rhs()
    A = torch.eye(20, dtype=J.dtype) - J.T
    basis = [A.T @ b[0]]
    for _ in range(4):
        basis.append(A.T @ A @ basis[-1])
    Q = torch.linalg.qr(torch.stack(basis, 1))[0]
    best = Q @ torch.linalg.lstsq(A @ Q, b[0].unsqueeze(1)).solution
    assert relative(sg.NormalCG(steps=5).solve(DenseMap(J), b).z, best.T) < 1e-8


def test_ridge_solves_the_damped_normal_equations():
    J, b = matrix("random", 0.9), rhs()
    A = torch.eye(20, dtype=J.dtype) - J.T
    expected = torch.linalg.solve(A.T @ A + 0.1 * torch.eye(20, dtype=J.dtype), A.T @ b[0])
    assert relative(sg.NormalCG(steps=60, ridge=0.1).solve(DenseMap(J), b).z[0], expected) < 1e-8


@pytest.mark.parametrize("solver", [sg.Neumann(), sg.Neumann(steps=20), Recurrence(sg.Picard())], ids=repr)
def test_growing_series_is_called_diverged(solver):
    solved = solver.solve(DenseMap(matrix("rotation", 1.5)), rhs())
    assert solved.status == [sg.Status.DIVERGED]


def test_divergence_keeps_the_best_iterate():
    b = rhs()
    solved = sg.Neumann().solve(DenseMap(matrix("rotation", 1.5)), b)
    assert torch.equal(solved.z, b)
    assert solved.residual[0] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("solver", "family", "radius"),
    [
        (sg.Neumann(), "rotation", 1.5),
        (sg.Neumann(), "rotation", 1.05),
        (Recurrence(sg.Anderson(history=1)), "rotation", 1.5),
        (Recurrence(sg.Broyden(history=1)), "rotation", 1.5),
        (sg.CG(), "rotation", 0.99),
    ],
    ids=repr,
)
def test_the_error_of_what_failed_is_that_of_the_iterate_that_is_kept(solver, family, radius):
    J, b = matrix(family, radius), rhs()
    solved = solver.solve(DenseMap(J), b)
    assert solved.status[0] is not sg.Status.CONVERGED
    assert solved.error[0] > relative(solved.z, adjoint_of(J, b)) / 5


@pytest.mark.parametrize("solver", [*KRYLOV, sg.Dense()], ids=repr)
def test_invertible_systems_need_no_contraction(solver):
    J, b = matrix("rotation", 1.5), rhs()
    solved = solver.solve(DenseMap(J), b)
    assert solved.status == [sg.Status.CONVERGED]
    assert relative(solved.z, adjoint_of(J, b)) < 1e-8


@pytest.mark.parametrize(
    "solver", [sg.NormalCG(), sg.LSQR(), sg.GMRES(), sg.BiCGSTAB(), sg.Dense(), sg.Auto(), sg.Neumann(max_steps=300)], ids=repr
)
@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-13])
def test_nearly_singular_systems_are_reported(solver, gap):
    Q = torch.linalg.qr(rhs(20, 20))[0]
    values = torch.linspace(0.1, 0.9, 20, dtype=torch.float64)
    values[-1] = 1 - gap
    solved = solver.solve(DenseMap(Q @ torch.diag(values) @ Q.T), rhs())
    assert solved.status[0] is not sg.Status.CONVERGED
    assert solved.z.isfinite().all()


@pytest.mark.parametrize("solver", TIGHT, ids=repr)
def test_nan_is_reported(solver):
    b = rhs()
    b[0, 3] = math.nan
    assert solver.solve(DenseMap(matrix("random", 0.5)), b).status == [sg.Status.NONFINITE]


def test_float32_stops_at_its_own_tolerance():
    J, b = matrix("random", 0.9).float(), rhs().float()
    solved = sg.NormalCG().solve(DenseMap(J), b)
    assert solved.status == [sg.Status.CONVERGED]
    assert 1e-9 < solved.residual[0] <= 1e-5


def test_transient_growth_of_a_non_normal_series_is_no_divergence():
    J = 0.5 * torch.eye(6, dtype=torch.float64) + 3 * torch.diag(torch.ones(5, dtype=torch.float64), 1)
    b = rhs(6)
    solved = sg.Neumann(max_steps=200).solve(DenseMap(J.T), b)
    assert solved.status == [sg.Status.CONVERGED]
    assert relative(solved.z, adjoint_of(J.T, b)) < 1e-6


def test_vanishing_terms_are_left_out():
    """A long count on a fast contraction stops before its terms become denormal."""
    operator = DenseMap(matrix("random", 0.01))
    solved = sg.Neumann(steps=10_000).solve(operator, rhs())
    assert operator.products < 40
    assert solved.status == [sg.Status.MAX_STEPS]
    assert relative(solved.z, adjoint_of(operator.J, rhs())) < 1e-15


SINGLE = [
    sg.Neumann(max_steps=5000),
    sg.NormalCG(max_steps=2000),
    sg.LSQR(max_steps=2000),
    sg.GMRES(max_steps=2000),
    sg.BiCGSTAB(max_steps=2000),
    Recurrence(sg.Anderson(max_steps=2000, rtol=1e-10)),
]


@pytest.mark.parametrize("size", [20, 60])
@pytest.mark.parametrize("radius", [0.1, *RADII, 1.5])
@pytest.mark.parametrize("family", FAMILIES)
def test_auto_is_nearly_the_best_in_hindsight(family, radius, size):
    def products(solver):
        operator = DenseMap(matrix(family, radius, size=size))
        solved = solver.solve(operator, rhs(size))
        return operator.products if solved.status == [sg.Status.CONVERGED] else math.inf

    assert products(sg.Auto(max_steps=2000, dear=True)) <= 1.3 * min(products(solver) for solver in SINGLE)
    # Where F is cheap a Krylov step costs some three products' time, and the first terms tell which way to go.
    assert products(sg.Auto(max_steps=2000)) <= 3 * min(products(solver) for solver in SINGLE) + 10


def test_auto_keeps_what_the_series_computed():
    """GMRES goes on from the sum of the terms: hardly more products than GMRES alone."""
    counts = []
    for solver in (sg.Auto(), sg.GMRES()):
        operator = DenseMap(matrix("random", 0.9))
        solver.solve(operator, rhs())
        counts.append(operator.products)
    assert counts[0] <= counts[1] + 5


def test_auto_is_deterministic():
    J, b = matrix("random", 0.97, size=60).float(), rhs(60).float()
    assert len({sg.Auto().solve(DenseMap(J), b).z.numpy().tobytes() for _ in range(5)}) == 1


def test_lsqr_is_cg_on_the_normal_equations():
    J, b = matrix("random", 0.9), rhs()
    for steps in (1, 4, 9):
        assert relative(sg.LSQR(steps=steps).solve(DenseMap(J), b).z, sg.NormalCG(steps=steps).solve(DenseMap(J), b).z) < 1e-9


def test_gmres_minimises_the_residual_over_the_krylov_space():
    J, b = matrix("nonnormal", 0.9), rhs()
    A = torch.eye(20, dtype=J.dtype) - J.T
    powers = [b[0]]
    for _ in range(4):
        powers.append(J.T @ powers[-1])
    Q = torch.linalg.qr(torch.stack(powers, 1))[0]
    best = Q @ torch.linalg.lstsq(A @ Q, b[0].unsqueeze(1)).solution
    assert relative(sg.GMRES(steps=5).solve(DenseMap(J), b).z, best.T) < 1e-9


def test_gmres_that_stalls_after_restarts_says_so():
    """Eigenvalues all around zero: a short restart makes no progress."""
    solved = sg.GMRES(restart=3).solve(DenseMap(matrix("rotation", 1.5, size=60)), rhs(60))
    assert solved.status == [sg.Status.STAGNATED]


@pytest.mark.parametrize("solver", TIGHT[:-1], ids=repr)
def test_rows_are_separate_problems(solver):
    """One block-diagonal J: each row has its own residual, coefficients and stop, and equals the solve of it alone."""
    b = rhs(20, 4) * torch.tensor([[1.0], [1e-6], [1e3], [0.0]], dtype=torch.float64)
    J = matrix("random", 0.9)
    together = solver.solve(DenseMap(J), b)
    for i in range(4):
        alone = solver.solve(DenseMap(J), b[i : i + 1])
        assert torch.allclose(together.z[i : i + 1], alone.z, rtol=1e-8, atol=0)
        assert together.status[i] is alone.status[0]


@pytest.mark.parametrize("solver", TIGHT[:-1], ids=repr)
def test_a_bad_row_spoils_no_other(solver):
    J = matrix("random", 0.9)
    b = rhs(20, 3)
    b[1] = math.nan
    solved = solver.solve(DenseMap(J), b)
    assert [s is sg.Status.CONVERGED for s in solved.status] == [True, False, True]
    good = [0, 2]
    assert relative(solved.z[good], adjoint_of(J, b[good])) < 1e-7


def test_breakdown_of_bicgstab_is_said():
    """⟨b, (I−Jᵀ)b⟩ = 0: its first step divides by zero."""
    J = torch.eye(2, dtype=torch.float64) - torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    solved = sg.BiCGSTAB().solve(DenseMap(J), rhs(2))
    assert solved.status == [sg.Status.STAGNATED]
    assert solved.z.isfinite().all()
    assert sg.GMRES().solve(DenseMap(J), rhs(2)).status == [sg.Status.CONVERGED]


@pytest.mark.parametrize("block", [1, 10**6])
def test_inner_products_for_the_error_estimate_by_blocks(block, monkeypatch):
    monkeypatch.setattr(gain, "BLOCK", block)
    monkeypatch.setattr(gain, "PIECE", block)
    vectors = [torch.randn(3, 53, dtype=torch.float32) for _ in range(5)]
    whole = torch.stack(vectors, dim=1).double()
    torch.testing.assert_close(gain.inner_products(vectors, len(vectors[0])), whole @ whole.mT, rtol=1e-13, atol=1e-13)


def test_what_rounding_leaves_is_not_solved_for_again():
    """‖z‖ is a thousand times ‖b‖, so that 1e-5 of ‖b‖ is a tenth of a rounding of z: no second run reaches it."""
    J = torch.diag(torch.full((30,), 0.5)) + torch.diag(torch.full((29,), 0.6), 1)
    b = torch.ones(1, 30)
    terms, v = 0, b
    while v.norm() > 1e-5 * b.norm():
        terms, v = terms + 1, v @ J
    of = DenseMap(J)
    solved = sg.Neumann(rtol=1e-5).solve(of, b)
    assert solved.residual[0] > 2e-5
    assert solved.status == [sg.Status.CONVERGED]
    assert relative(solved.z.double(), adjoint_of(J.double(), b.double())) < 1e-5
    assert of.products < 1.35 * terms
