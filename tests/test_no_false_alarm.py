"""What looks like a failure and is none: transients, rounding floors, degenerate Krylov spaces."""

from functools import partial

import pytest
import torch

import steadygrad as sg
from problems import relative
from steadygrad.linear.leaps import leapt
from steadygrad.linear.neumann import Sum

F64 = torch.float64


def test_leaving_an_unstable_point_is_no_divergence():
    W = torch.tensor(3.0, requires_grad=True)
    solution = sg.steady_state(lambda h: torch.tanh(W * h + 1e-6), torch.zeros(1))
    assert solution.converged
    assert solution.value.item() == pytest.approx(0.9949, abs=1e-3)


def test_rbp_at_its_rounding_floor_raises_no_alarm():
    c = torch.zeros(1, requires_grad=True)
    solution = sg.steady_state(lambda h: 0.9 * h + c, torch.zeros(1), gradient=sg.Implicit(sg.Picard(500, 1e-6)))
    solution.value.sum().backward()
    assert solution.adjoint.converged


@pytest.mark.parametrize("c", [0.5, 0.9, -2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_auto_on_a_degenerate_krylov_space(c, dtype):
    x = torch.arange(1.0, 13.0, dtype=dtype).requires_grad_()
    solution = sg.steady_state(lambda h: c * h + x, torch.zeros(12, dtype=dtype), forward=sg.Anderson(300))
    (solution.value * x.detach()).sum().backward()
    assert solution.adjoint.converged
    assert torch.allclose(x.grad, x.detach() / (1 - c), rtol=1e-4)


def test_auto_on_a_matrix_of_rank_one():
    u = torch.rand(12, dtype=torch.float64)
    u = u / u.sum()
    x = torch.ones(12, dtype=torch.float64, requires_grad=True)
    solution = sg.steady_state(
        lambda h: 0.8 * (h @ u) * torch.ones(12).double() + x, torch.zeros(12).double(), forward=sg.Picard(500, 1e-12)
    )
    solution.value.sum().backward()
    assert torch.allclose(x.grad, 1 + 12 * 0.8 * u / 0.2)


@pytest.mark.parametrize("size", [20.0, 1e3, 1e6])
@pytest.mark.parametrize("rows", [1, 3])
def test_auto_solves_what_a_series_leaves_in_one_step(size, rows):
    """A term of the series may grow by any factor before the next look: GMRES goes on from there, however large J is."""
    generator = torch.Generator().manual_seed(int(size) + rows)
    for _ in range(10):
        J = size * torch.randn(5, 5, generator=generator, dtype=torch.float64)
        b = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
        c = torch.zeros(rows, 5, dtype=torch.float64, requires_grad=True)
        solution = sg.steady_state(
            partial(_affine, J, c), torch.zeros_like(b), forward=sg.Picard(max_steps=1, rtol=0), batch_dims=1
        )
        (z,) = torch.autograd.grad((solution.value * b).sum(), c)
        assert solution.adjoint.status is sg.Status.CONVERGED
        truth = torch.linalg.solve(torch.eye(5, dtype=torch.float64) - J.T, b.T).T
        torch.testing.assert_close(z, truth, rtol=1e-6, atol=1e-6 * truth.abs().max().item())


def _affine(J, c, h):
    return h @ J.T + c


@pytest.mark.parametrize("seed", [948, 3461, 3574])
def test_terms_that_are_parallel_to_the_last_digit(seed):
    """A series along one slow direction: the Gram matrix of its terms is singular up to rounding, or exactly so."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    n = int(torch.randint(2, 6, (), generator=generator))
    slow = 0.9 + 0.0999 * torch.rand((), generator=generator, dtype=torch.float64)
    along = normal(1, n)
    beside = 10.0 ** (-4 - 8 * torch.rand((), generator=generator, dtype=torch.float64))
    v = along + beside * normal(1, n)
    values = torch.cat([slow[None], 0.3 * normal(n)[1:].abs()])
    Q = torch.linalg.qr(torch.cat([along.T, normal(n, n - 1)], 1))[0]
    J, seen = Q @ torch.diag(values) @ Q.T, []
    for _ in range(4):
        seen.append((v, v @ J))
        v = seen[-1][1]
    ahead, _ = leapt(Sum(torch.zeros_like(v), v, tuple(seen)))
    assert ahead.v.norm() <= v.norm()
    torch.testing.assert_close(ahead.v, v - (ahead.z - ahead.z @ J), rtol=0, atol=1e-9 * v.norm().item())


def test_a_leap_takes_terms_in_the_shape_that_f_knows():
    """A large state of several dimensions: terms are kept as F's backward returned them, the sum as a matrix."""
    generator = torch.Generator().manual_seed(1)
    J = 0.9 * torch.linalg.qr(torch.randn(12, 12, generator=generator, dtype=F64))[0]
    v, seen = torch.randn(5, 12, generator=generator, dtype=F64), []
    for _ in range(4):
        seen.append((v, v @ J))
        v = seen[-1][1]
    flat, gain = leapt(Sum(torch.zeros_like(v), v, tuple(seen)))
    shaped = {id(x): x.view(5, 3, 2, 2) for pair in seen for x in pair}
    other, other_gain = leapt(Sum(torch.zeros_like(v), v, tuple((shaped[id(a)], shaped[id(b)]) for a, b in seen)))
    assert (gain > 0).any()
    torch.testing.assert_close((flat.z, flat.v, gain), (other.z, other.v, other_gain), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", [sg.Picard, sg.Anderson, sg.Broyden])
def test_where_an_absolute_tolerance_was_given_for_a_state_that_vanishes(solver, dtype):
    """It is as small as asked for, so that nothing relative to it is known."""
    W = (0.6 * torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(3)))[0]).to(dtype).requires_grad_()
    forward = solver(max_steps=500, rtol=1e-5, atol=1e-3)
    solution = sg.steady_state(lambda h: torch.tanh(h @ W.T), torch.ones(6, dtype=dtype), forward=forward, on_failure="raise")
    (solution.value.square().sum() + solution.value.sum()).backward()
    assert solution.converged


def computed_in_single(gradient, radius):
    """A float64 state of an F that computes in float32 inside, as a net in a solver of physics does; the gradient's error."""
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(6, 6, generator=generator))[0]
    W = (radius * Q @ torch.diag(torch.linspace(0.1, 1, 6)) @ Q.T).requires_grad_()
    x, b = (torch.randn(3, 6, generator=generator) for _ in range(2))
    update = lambda h: (h.float() @ W.T + x).double()  # noqa: E731
    solution = sg.steady_state(update, torch.zeros(3, 6, dtype=F64), gradient=gradient, forward=sg.Picard(max_steps=2000))
    found = torch.autograd.grad((solution.value * b).sum(), W)[0]
    V = W.detach().double().requires_grad_()
    exact = torch.linalg.solve(torch.eye(6, dtype=F64) - V, x.double().T).T
    return relative(found.double(), torch.autograd.grad((exact * b).sum(), V)[0]), solution


@pytest.mark.parametrize("radius", [0.5, 0.97])
@pytest.mark.parametrize("gradient", ["auto", "lsqr", "gmres", "cg-rbp", "bicgstab", "anderson", "dense"])
def test_f_computes_in_single_precision_inside(gradient, radius):
    off, solution = computed_in_single(gradient, radius)
    assert off < 1e-3
    assert solution.converged
    assert solution.adjoint.converged


def test_a_tolerance_that_was_asked_for_is_still_insisted_on():
    with pytest.warns(sg.SteadyStateWarning, match="STAGNATED"):
        computed_in_single(sg.Implicit(sg.GMRES(rtol=1e-10)), 0.97)
