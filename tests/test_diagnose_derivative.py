"""sg.diagnose on what the certificate of an adjoint cannot see: broken derivatives and randomness."""

import math
import random

import pytest
import torch
from torch import nn

import steadygrad as sg
from diagnoses import F64, kinds
from problems import tanh_problem


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_detached_path(dtype):
    F, W, x, h0 = tanh_problem(dtype=dtype)
    wrong = lambda h: torch.tanh((0.9 * h + 0.1 * h.detach()) @ W.T + x)  # noqa: E731
    solution = sg.steady_state(wrong, h0)
    solution.value.sum().backward()
    assert solution.adjoint.converged  # a perfect certificate
    diagnosis = sg.diagnose(wrong, solution.value)
    assert "wrong derivative" in kinds(diagnosis)
    assert not diagnosis.trustworthy
    assert "detach()" in diagnosis.advice
    assert sg.diagnose(F, solution.value).derivative.mismatch < 1e-3


def test_no_grad_and_numpy():
    F, W, x, h0 = tanh_problem()
    steady = sg.steady_state(F, h0).value.detach()

    def without(h):
        with torch.no_grad():
            return F(h)

    for wrong in (without, lambda h: torch.tanh(torch.from_numpy(h.detach().numpy() @ W.detach().numpy().T) + x)):
        diagnosis = sg.diagnose(wrong, steady)
        assert "wrong derivative" in kinds(diagnosis)
        assert diagnosis.spectral_radius == 0


def test_jumps():
    diagnosis = sg.diagnose(lambda h: 0.5 * h + 0.1 * torch.sign(h), torch.zeros(5, dtype=F64))
    assert kinds(diagnosis)[0] == "not differentiable"
    assert not diagnosis.trustworthy


def test_kinks_are_no_offence():
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(64, 64, generator=generator) / 20
    x = torch.randn(8, 64, generator=generator)
    F = lambda h: torch.relu(h @ W.T + x)  # noqa: E731
    assert sg.diagnose(F, sg.steady_state(F, torch.zeros(8, 64)).value).trustworthy


def test_dropout():
    dropout = nn.Dropout(0.5)
    F, W, x, h0 = tanh_problem(dtype=torch.float32)
    drop = lambda h: dropout(F(h))  # noqa: E731
    diagnosis = sg.diagnose(drop, sg.steady_state(drop, h0).value)
    assert "random" in kinds(diagnosis)
    assert diagnosis.randomness > 0
    assert diagnosis.uncontrolled == 0
    dropout.eval()
    assert sg.diagnose(drop, sg.steady_state(drop, h0).value).randomness == 0


def test_randomness_that_torch_does_not_know():
    draws = random.Random(0)
    F, W, x, h0 = tanh_problem()
    diagnosis = sg.diagnose(lambda h: F(h) + 0.1 * draws.random(), sg.steady_state(F, h0).value)
    assert diagnosis.uncontrolled > 0
    assert not diagnosis.trustworthy
    assert "argument" in diagnosis.advice


def test_leaves_the_random_state_alone():
    F, W, x, h0 = tanh_problem()
    before = torch.get_rng_state()
    sg.diagnose(lambda h: nn.functional.dropout(F(h), 0.1), h0, rtol=0.9)
    assert torch.equal(torch.get_rng_state(), before)


def test_no_second_derivative():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            return 0.5 * h + 1

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):
            return 0.5 * grad

    diagnosis = sg.diagnose(Once.apply, torch.full((3,), 2.0, dtype=F64))
    assert diagnosis.spectral_radius == pytest.approx(0.5)
    assert math.isnan(diagnosis.norm)
    assert "second derivative" in next(iter(diagnosis.unknown.values()))
    assert "second derivative" in str(diagnosis)
