"""sg.minimum finds minima: not saddles, not maxima, and it moves."""

import pytest
import torch

import steadygrad as sg
from problems import relative

F64 = torch.float64


def quadratic(values, seed=0):
    Q = torch.linalg.qr(torch.randn(len(values), len(values), generator=torch.Generator().manual_seed(seed), dtype=F64))[0]
    return Q @ torch.diag(torch.tensor(values, dtype=F64)) @ Q.T


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "values", [[-1.0, -2.0, -0.5], [1.0, -0.5, 2.0], [3.0, 2.0, -1e-3]], ids=["concave", "indefinite", "hardly"]
)
def test_an_energy_without_minimum_does_not_converge(values, batched, seed):
    A = quadratic(values, seed)
    x = torch.randn(3, generator=torch.Generator().manual_seed(seed + 1), dtype=F64)
    shape = (2, 3) if batched else (3,)

    def energy(h):
        return 0.5 * ((h - x) @ A * (h - x)).sum(-1)

    solution = sg.minimum(energy, torch.zeros(shape, dtype=F64), batch_dims=int(batched), on_failure="ignore")
    assert solution.status is not sg.Status.CONVERGED


def double_well(h, x):
    return (0.25 * (h**2 - 1) ** 2 - 0.1 * h * x).sum(-1)


@pytest.mark.parametrize("start", [-2.0, -0.3, 0.0, 0.1, 0.6, 2.0])
def test_the_ridge_of_a_double_well_is_left(start):
    x = torch.full((4, 1), 0.5, dtype=F64, requires_grad=True)
    solution = sg.minimum(double_well, torch.full((4, 1), start, dtype=F64), x, batch_dims=1, on_failure="raise")
    h = solution.value.detach()
    assert ((3 * h**2 - 1) > 0).all()
    assert (h**3 - h - 0.05).abs().max() < 1e-5
    (grad,) = torch.autograd.grad(solution.value.sum(), x)
    assert torch.allclose(grad, 0.1 / (3 * h**2 - 1), rtol=1e-4)
    assert (grad > 0).all()


def test_a_start_exactly_on_a_maximum_of_one_problem():
    x = torch.zeros(1, dtype=F64, requires_grad=True)
    solution = sg.minimum(double_well, torch.zeros(1, dtype=F64), x, on_failure="raise")
    assert abs(solution.value.item()) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["logistic", "quartic", "softplus"])
@pytest.mark.parametrize("batched", [False, True])
def test_strictly_convex_energies(kind, seed, batched):
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(12, 6, generator=generator, dtype=F64)
    y = torch.randn(12, generator=generator, dtype=F64).sign()
    w = torch.tensor(0.1, dtype=F64, requires_grad=True)

    def energy(h):
        r = h @ A.T
        data = {
            "logistic": torch.nn.functional.softplus(-y * r),
            "quartic": (r - y) ** 2 + 0.1 * (r - y) ** 4,
            "softplus": torch.nn.functional.softplus(r - y) + torch.nn.functional.softplus(y - 2 * r),
        }[kind]
        return data.sum(-1) + w * h.square().sum(-1)

    start = torch.zeros((3, 6) if batched else (6,), dtype=F64)
    solution = sg.minimum(energy, start, batch_dims=int(batched), on_failure="raise")
    h = solution.value.detach().requires_grad_()
    (slope,) = torch.autograd.grad(energy(h).sum(), h)
    assert slope.abs().max() < 1e-4
    (grad,) = torch.autograd.grad(solution.value.sum(), w)
    H = torch.autograd.functional.hessian(lambda g: energy(g).sum(), h.detach().reshape(-1, 6)[0])
    one = -torch.linalg.solve(H, 2 * h.detach().reshape(-1, 6)[0]).sum()
    assert grad.item() == pytest.approx((3 if batched else 1) * one.item(), rel=1e-4)


@pytest.mark.parametrize("batched", [False, True])
def test_rosenbrock(batched):
    def energy(h):
        return (1 - h[..., 0]) ** 2 + 100 * (h[..., 1] - h[..., 0] ** 2) ** 2

    start = torch.zeros((2, 2) if batched else (2,), dtype=F64)
    solution = sg.minimum(energy, start, batch_dims=int(batched), on_failure="raise")
    assert relative(solution.value, torch.ones_like(start)) < 1e-5


def test_an_energy_without_a_bound_is_not_said_to_be_nan_at_its_start():
    """A concave energy runs away in the first step of L-BFGS: that is how the search ended, and h0 is not to blame."""
    A = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    H = -(A @ A.T)
    with pytest.warns(sg.SteadyStateWarning, match="ended") as caught:
        solution = sg.minimum(lambda h: 0.5 * h @ H @ h - h.sum(), torch.zeros(5, dtype=torch.float64))
    assert solution.status is not sg.Status.CONVERGED
    assert not any("first call" in str(w.message) for w in caught)
