"""What is no root or no minimum is not called one; ill-conditioned and separate ones are found."""

import pytest
import torch
from torch import nn

import steadygrad as sg


@pytest.mark.parametrize(
    "g",
    [lambda h, a: h**2 - a, lambda h, a: h**2 + 1 + 0 * a, lambda h, a: h**3 + h - a * float("nan")],
    ids=["flat start", "no root", "nan"],
)
def test_what_is_no_root_is_not_converged(g):
    a = torch.full((2,), 2.0, dtype=torch.float64, requires_grad=True)
    solution = sg.root(g, torch.zeros(2).double(), a, on_failure="ignore")
    assert not solution.converged


@pytest.mark.parametrize(
    ("energy", "make"),
    [
        (lambda h, x: nn.functional.huber_loss(h, x, reduction="sum"), lambda p: torch.optim.SGD(p, lr=1e-3)),
        (lambda h, x: (h * (x * 0 + 1)).sum(), None),
        (lambda h, x: ((h - x) ** 2).sum() + (h - x).abs().pow(3).sum(), lambda p: torch.optim.SGD(p, lr=1e-9)),
    ],
    ids=["flat", "unbounded", "no step"],
)
def test_what_is_no_minimum_is_not_converged(energy, make):
    x = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    forward = sg.Minimise(max_steps=3) if make is None else sg.Minimise(max_steps=3, optimiser=make, every=1)
    solution = sg.minimum(energy, torch.full((2,), 10.0).double(), x, forward=forward, on_failure="ignore")
    assert not solution.converged or (solution.value - x).abs().max() < 1e-5


def test_ill_conditioned_energy():
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, 1e6], dtype=torch.float64)
    solution = sg.minimum(lambda h: ((h - x) ** 2 * weights).sum(), torch.zeros(2).double())
    assert solution.converged
    assert (solution.value - 1).abs().max() < 1e-6


def test_minima_of_a_batch_are_separate():
    k = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64, requires_grad=True)
    solution = sg.minimum(lambda h, k: (k * h**2 - h).sum(1), torch.zeros(3, 1).double(), k, batch_dims=1)
    assert torch.allclose(solution.value, 0.5 / k)
    with pytest.raises(ValueError, match="couple the problems"):
        sg.minimum(lambda h, k: (k * h**2 - h).sum(1), torch.zeros(3, 1).double(), k, batch_dims=1, forward=sg.Minimise())
