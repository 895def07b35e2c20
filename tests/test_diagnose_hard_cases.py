"""sg.diagnose on problems where a naive measurement misleads: early invariant spaces, kinks, missing derivatives, unsolved systems."""

import pytest
import torch

import steadygrad as sg
from diagnoses import Cell, kinds
from problems import matrix

F64 = torch.float64


def test_rows_whose_krylov_space_ends_early():
    a = torch.stack([torch.full((60,), 0.7), torch.linspace(0, 0.9, 60)])
    diagnosis = sg.diagnose(lambda h, a: a * h + 1, 1 / (1 - a), a, batch_dims=1)
    assert diagnosis.radii == pytest.approx((0.7, 0.9), rel=1e-5)
    assert diagnosis.norm == pytest.approx(0.9, rel=1e-3)
    assert diagnosis.min_singular_value == pytest.approx(0.1, rel=1e-3)


def test_infinite_derivative_at_a_finite_state():
    diagnosis = sg.diagnose(lambda h: 0.5 * torch.sqrt(h), torch.zeros(3))
    assert kinds(diagnosis)[0] == "no derivative"
    layer = sg.Equilibrium(lambda x, h: 0.5 * torch.sqrt(x if h is None else h), diagnose_every=1)
    with pytest.warns(sg.SteadyStateWarning, match="derivative of F there, is not finite"):
        layer(torch.zeros(3))


def test_update_that_raises_from_other_starts():
    A, M = torch.eye(3) * 2 + 0.1, torch.eye(3)
    F = lambda h: 0.5 * (h + A @ torch.linalg.inv(h))  # noqa: E731
    for _ in range(30):
        M = F(M)
    diagnosis = sg.diagnose(F, M)
    assert "LinAlgError" in diagnosis.starts[1].name
    assert diagnosis.trustworthy


class Opaque(torch.autograd.Function):
    """Half of h, without a second derivative."""

    @staticmethod
    def forward(ctx, h):
        return 0.5 * h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return 0.5 * grad


def test_detached_path_without_second_derivatives():
    h = torch.full((5,), 10.0, dtype=F64)
    wrong = sg.diagnose(lambda h: Opaque.apply(h) + 0.4 * h.detach() + 1, h)
    assert "wrong derivative" in kinds(wrong)
    right = sg.diagnose(lambda h: Opaque.apply(h) + 5, h)
    assert right.trustworthy
    assert "invertible" not in right.verdict  # it was not measured


@pytest.mark.parametrize("size", [100, 300])
def test_singular_inside_the_spectrum(size):
    Q = torch.linalg.qr(torch.randn(size, size, dtype=F64)).Q
    values = torch.linspace(-1.3, 1.3, size, dtype=F64)
    values[(values - 1).abs().argmin()] = 1.0
    A = Q @ torch.diag(values) @ Q.T
    diagnosis = sg.diagnose(lambda h: A @ h, torch.zeros(size, dtype=F64), starts=False)
    assert kinds(diagnosis)[0] in ("singular", "unsolved", "fragile")
    assert diagnosis.min_singular_value < 1e-10 or kinds(diagnosis)[0] == "unsolved"


def test_no_count_of_terms_where_the_adjoint_was_not_solved():
    a = torch.linspace(-0.99, 0.9999, 1000, dtype=F64)
    diagnosis = sg.diagnose(lambda h: a * h, torch.zeros(1000, dtype=F64), starts=False)
    K = diagnosis.steps_for(1e-3)
    assert K is None or K > 50_000


def test_slow_state_whose_newton_step_is_not_solved():
    size = 400
    values = 1 - torch.logspace(-3.5, 0, size, dtype=F64)
    target = torch.randn(size, dtype=F64)
    h = torch.zeros(size, dtype=F64)
    F = lambda h: target + values * (h - target)  # noqa: E731
    while (F(h) - h).norm() > 9.9e-5 * F(h).norm():
        h = F(h)
    assert (h - target).norm() > 0.1 * h.norm()
    assert not sg.diagnose(F, h, starts=False).trustworthy


@pytest.mark.parametrize("slope", [-1.5, -0.997])
def test_close_to_a_steady_state_that_does_not_attract_fast(slope):
    h = torch.full((5,), 1 / (1 - slope)) * (1 + 1e-4 * torch.randn(5))
    diagnosis = sg.diagnose(lambda h: slope * h + 1, h)
    assert kinds(diagnosis)[0] == "nearly steady"
    assert diagnosis.trustworthy


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_grad_mode(mode):
    W = (0.5 * torch.eye(3)).requires_grad_()
    with mode():
        diagnosis = sg.diagnose(lambda h: W @ h + 1, torch.full((3,), 2.0), parameters=[W])
    assert kinds(diagnosis) == ["sound"]
    assert W.grad is None


def test_parameter_that_matters_less_here_than_elsewhere():
    a = torch.tensor(1.0, dtype=F64, requires_grad=True)
    diagnosis = sg.diagnose(lambda h: torch.exp(8 * (h - 1)) * a * 0.1 + 0.9 * a, torch.ones(20, dtype=F64), parameters={"a": a})
    assert diagnosis.parameters["a"].kind == "moves"


def test_kink_is_not_a_detached_path():
    W = matrix("random", 0.5)
    assert kinds(sg.diagnose(lambda h: torch.relu(W @ h), torch.zeros(20, dtype=F64)))[0] == "not differentiable"


def test_uncertain_radius_is_marked():
    shift = lambda h: torch.cat([h[1:], 0 * h[:1]]) + 1  # noqa: E731
    diagnosis = sg.diagnose(shift, torch.arange(200, 0, -1).double(), starts=False)
    assert "spectral_radius" in diagnosis.bounds
    assert "~" in str(diagnosis)


def test_history_keeps_each_backward_with_its_call():
    layer = sg.Equilibrium(Cell(0.5), diagnose_every=1, gradient=sg.Implicit(sg.Neumann(steps=1)))
    x = torch.ones(1, 6, dtype=F64)
    layer(x).sum().backward()
    before = layer.history.entries[0].adjoint_residual
    layer.eval()
    layer(50 * x).square().sum().backward()
    assert layer.history.entries[0].adjoint_residual == before


def test_shrinking_steps_of_an_expansive_map_are_no_approach():
    """Seen on Pubmed as published: "on its way to a steady state" with ρ(J) = 3."""

    def update(h):
        return torch.stack([0.9 * h[0] + 0.1, 3 * h[1]])  # the second place is at its unstable rest

    diagnosis = sg.diagnose(update, torch.tensor([5.0, 0.0], dtype=torch.float64))
    assert diagnosis.motion.kind == "approaching"
    assert diagnosis.course == "receding"
    assert "need not come to rest" in diagnosis.verdict
    assert "its steps shrink, but ρ(J) is above 1" in str(diagnosis)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("root", ["square", "cube", "inverse", "cosine"])
def test_superattracting_state(root, scale, dtype):
    """Newton's iteration has J = 0 at its root: neither Jv nor a difference has a size of its own there."""
    a = (torch.rand(4, dtype=F64) * 4 + 0.3).to(dtype)
    update = {
        "square": lambda h: 0.5 * (h + scale**2 * a / h),
        "cube": lambda h: h - (h**3 - scale**3 * a) / (3 * h**2),
        "inverse": lambda h: h * (2 - a / scale * h),
        "cosine": lambda h: h - scale * (h / scale - torch.cos(h / scale)) / (1 + torch.sin(h / scale)),
    }[root]
    h = torch.full((4,), 0.2 * scale, dtype=dtype)
    for _ in range(40):
        h = update(h)
    diagnosis = sg.diagnose(update, h)
    assert diagnosis.trustworthy
    assert diagnosis.norm < 1e-3
    assert kinds(diagnosis)[0] == "sound"


def test_detached_path_at_a_superattracting_state():
    """J = 0 there, and autograd says 1/2: that is no rounding."""
    a = torch.rand(4, dtype=F64) + 0.5
    diagnosis = sg.diagnose(lambda h: 0.5 * (h + a / h.detach()), a.sqrt())
    assert "wrong derivative" in kinds(diagnosis)
