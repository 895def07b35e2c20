"""A problem that is not finite spoils no other, in any kind of solve."""

import pytest
import torch

import steadygrad as sg
from problems import relative


def test_nan_row_of_a_root():
    x = torch.tensor([[1.0], [2.0], [float("nan")]], dtype=torch.float64, requires_grad=True)
    solution = sg.root(lambda h, x: h**3 + h - x, torch.zeros(3, 1).double(), x, batch_dims=1, on_failure="ignore")
    assert solution.converged.tolist() == [True, True, False]


@pytest.mark.parametrize("options", [{"forward": sg.Picard(25, rtol=0)}, {"derivatives": 2}, {"gradient": "phantom"}], ids=str)
def test_nan_row_with_args(options):
    W = (0.5 * torch.eye(3, dtype=torch.float64)).requires_grad_()
    x = torch.randn(4, 3, dtype=torch.float64)
    x[1] = float("nan")
    solution = sg.steady_state(
        lambda h, x: torch.tanh(h @ W.T + x), torch.zeros(4, 3).double(), x, batch_dims=1, on_failure="ignore", **options
    )
    good = [0, 2, 3]
    (grad,) = torch.autograd.grad(solution.value[good].sum(), W)
    plain = sg.steady_state(lambda h, x: torch.tanh(h @ W.T + x), torch.zeros(3, 3).double(), x[good], batch_dims=1, **options)
    assert relative(grad, torch.autograd.grad(plain.value.sum(), W)[0]) < 1e-4


def test_a_row_at_rest_at_zero_beside_a_nan_row():
    x = torch.tensor([[float("nan")], [0.0], [1.0]])
    forward = sg.Picard(max_steps=1)
    solution = sg.steady_state(
        lambda h, x: 0.5 * h + x, torch.zeros(3, 1), x, forward=forward, batch_dims=1, on_failure="ignore", gradient="bptt"
    )
    assert [status.name for status in solution.problems.statuses] == ["NONFINITE", "CONVERGED", "MAX_STEPS"]


def test_auto_with_a_nan_row_in_a_long_solve():
    W = (0.99 * torch.linalg.qr(torch.randn(80, 80, dtype=torch.float64))[0]).requires_grad_()
    x = 0.01 * torch.randn(3, 80, dtype=torch.float64)
    x[1] = float("nan")
    solution = sg.steady_state(
        lambda h: h @ W.T + x, torch.zeros(3, 80).double(), batch_dims=1, on_failure="ignore", forward=sg.Picard(3, 0)
    )
    solution.value[[0, 2]].sum().backward()
