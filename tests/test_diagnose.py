"""sg.diagnose against dense algebra, on all kinds of states."""

import math

import pytest
import torch
from torch import nn

import steadygrad as sg
from diagnoses import F64, kinds, linear
from problems import Affine, matrix, tanh_problem


@pytest.mark.parametrize("family", ["random", "symmetric", "nonnormal", "rotation"])
@pytest.mark.parametrize("radius", [0.5, 0.9, 1.3])
def test_numbers(family, radius):
    J = matrix(family, radius, size=40)
    F, h = linear(J)
    diagnosis = sg.diagnose(F, h)
    assert diagnosis.spectral_radius == pytest.approx(radius, rel=1e-6)
    assert diagnosis.norm == pytest.approx(torch.linalg.matrix_norm(J, 2).item(), rel=1e-3)
    smallest = torch.linalg.svdvals(torch.eye(40, dtype=F64) - J)[-1].item()
    assert diagnosis.min_singular_value == pytest.approx(smallest, rel=0.02)
    assert diagnosis.non_normality == pytest.approx(diagnosis.norm / radius, rel=1e-6)
    assert diagnosis.bounds == frozenset()


@pytest.mark.parametrize("family", ["random", "nonnormal", "rotation"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_radius_within_one_per_cent_in_512_dimensions(family, dtype):
    J = matrix(family, 0.9, size=512).to(dtype)
    F, h = linear(J)
    diagnosis = sg.diagnose(F, h, starts=False)
    assert diagnosis.spectral_radius == pytest.approx(0.9, rel=0.01)
    assert diagnosis.norm == pytest.approx(torch.linalg.matrix_norm(J, 2).item(), rel=0.01)
    smallest = torch.linalg.svdvals(torch.eye(512, dtype=dtype) - J)[-1].item()
    assert smallest * (1 - 1e-3) <= diagnosis.min_singular_value <= 1.1 * smallest


def test_rotation_is_a_complex_pair():
    c, s = 0.9 * math.cos(1.0), 0.9 * math.sin(1.0)
    J = torch.tensor([[c, -s], [s, c]], dtype=F64)
    F, h = linear(J)
    diagnosis = sg.diagnose(F, h)
    assert diagnosis.spectral_radius == pytest.approx(0.9, rel=1e-12)
    assert {round(abs(value.imag), 6) for value in diagnosis.eigenvalues} == {round(abs(s), 6)}


@pytest.mark.parametrize("family", ["random", "symmetric", "nonnormal", "rotation"])
@pytest.mark.parametrize("rtol", [1e-2, 1e-5, 1e-20])
def test_steps_are_just_enough(family, rtol):
    J = matrix(family, 0.9)
    F, h = linear(J)
    b = torch.randn(20, dtype=F64)
    K = sg.diagnose(F, h, cotangent=b).steps_for(rtol)
    z = torch.linalg.solve(torch.eye(20, dtype=F64) - J.T, b)

    def error(terms):
        return (torch.linalg.matrix_power(J.T, terms + 1) @ z).norm().item() / z.norm().item()

    assert error(K) <= rtol * (1.5 if rtol < 1e-12 else 1)  # beyond the terms observed, by extrapolation
    assert error(K - (1 if rtol > 1e-12 else 12)) > rtol


def test_steps_where_proposition_3_says_nothing():
    """‖J‖ = 4 makes the bound grow with K; the series converges all the same."""
    J = torch.tensor([[0.5, 4.0], [0.0, 0.4]], dtype=F64)
    F, h = linear(J)
    diagnosis = sg.diagnose(F, h)
    assert diagnosis.norm > 4
    assert diagnosis.steps_for(1e-3) < 20
    assert "non-normal" in kinds(diagnosis)
    assert diagnosis.trustworthy


def test_distance_is_the_newton_step():
    problem = Affine.of("random", 0.9)
    h = problem.steady() + 0.01
    diagnosis = sg.diagnose(problem, h, rtol=0.5)
    assert diagnosis.distance == pytest.approx((problem.steady() - h).norm().item() / h.norm().item(), rel=1e-3)


def test_batch_reports_its_worst_problem():
    radii = torch.tensor([0.2, 0.7, 0.4], dtype=F64)
    J = torch.stack([matrix("rotation", radius.item(), size=8) for radius in radii])
    h = torch.zeros(3, 8, dtype=F64)
    diagnosis = sg.diagnose(lambda h: (J @ h.unsqueeze(2)).squeeze(2), h, batch_dims=1)
    assert diagnosis.radii == pytest.approx(radii.tolist(), rel=1e-9)
    assert diagnosis.spectral_radius == pytest.approx(0.7)
    assert (diagnosis.problems, diagnosis.size) == (3, 8)
    assert sg.diagnose(lambda h: (J @ h.unsqueeze(2)).squeeze(2), h).spectral_radius == pytest.approx(0.7)


def test_batch_counts_the_problems_that_move():
    J = torch.tensor([[0.5], [-1.0], [0.5]], dtype=F64)
    diagnosis = sg.diagnose(lambda h: J * h + 1, torch.tensor([[2.0], [0.0], [2.0]], dtype=F64), batch_dims=1)
    assert diagnosis.motion.kind == "cycle"
    assert "1 of 3 problems" in diagnosis.verdict


def test_many_wide_problems_restart_together():
    J = torch.stack([matrix("rotation", 0.9, size=200, seed=seed) for seed in range(3)])
    h = torch.zeros(3, 200, dtype=F64)
    diagnosis = sg.diagnose(lambda h: (J @ h.unsqueeze(2)).squeeze(2), h, batch_dims=1, starts=False)
    assert diagnosis.radii == pytest.approx([0.9] * 3, rel=0.01)


def test_nested_state():
    cell = nn.LSTMCell(3, 5).double()
    x = torch.randn(2, 3, dtype=F64)
    h0 = (torch.zeros(2, 5, dtype=F64), torch.zeros(2, 5, dtype=F64))
    h = sg.steady_state(lambda h: cell(x, h), h0, forward=sg.Picard(max_steps=500, rtol=1e-10), gradient="bptt").value
    diagnosis = sg.diagnose(lambda h: cell(x, h), h, cotangent=(torch.ones(2, 5, dtype=F64), torch.zeros(2, 5, dtype=F64)))
    flat = torch.func.jacrev(lambda v: torch.cat(cell(x, (v[:10].view(2, 5), v[10:].view(2, 5)))).flatten())
    J = flat(torch.cat([leaf.flatten() for leaf in h]).detach())
    # The flat state of the library joins the leaves row by row or leaf by leaf: eigenvalues do not mind.
    assert diagnosis.spectral_radius == pytest.approx(torch.linalg.eigvals(J).abs().max().item(), rel=1e-6)
    assert diagnosis.trustworthy


def test_sparse_update():
    A = (0.3 * torch.eye(30, dtype=F64) + 0.3 * torch.diag(torch.ones(29, dtype=F64), 1)).to_sparse()
    x = torch.randn(30, 2, dtype=F64)
    F = lambda h: torch.sparse.mm(A, h) + x  # noqa: E731
    diagnosis = sg.diagnose(F, sg.steady_state(F, torch.zeros(30, 2, dtype=F64)).value)
    assert diagnosis.norm == pytest.approx(torch.linalg.matrix_norm(A.to_dense(), 2).item(), rel=1e-3)
    assert diagnosis.trustworthy


def test_float32_and_arguments():
    F, W, x, h0 = tanh_problem(dtype=torch.float32)
    solution = sg.steady_state(lambda h, x: torch.tanh(h @ W.T + x), h0, x)
    diagnosis = sg.diagnose(lambda h, x: torch.tanh(h @ W.T + x), solution.value, x, batch_dims=1)
    assert diagnosis.trustworthy
    assert diagnosis.problems == 3
    assert kinds(diagnosis) == ["sound"]


def test_products_only():
    """A dense J of this state would have 4·10⁸ entries."""
    weight = 0.9 * torch.rand(20_000)
    diagnosis = sg.diagnose(lambda h: weight * h.roll(1) + 1, torch.zeros(20_000), starts=False)
    assert diagnosis.products < 3000
