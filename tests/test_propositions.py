"""Propositions 1 to 4 of Liao et al. 2018, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import steadygrad as sg
from problems import FAMILIES, DenseMap, matrix, relative, tanh_problem
from steadygrad.linear import Recurrence

LONG = sg.Picard(max_steps=400, rtol=0)


def gradient_of(gradient, forward=LONG, seed=0):
    F, W, _, h0 = tanh_problem(seed=seed)
    return torch.autograd.grad(sg.steady_state(F, h0, forward=forward, gradient=gradient).value.square().sum(), W)[0]


@pytest.mark.parametrize("seed", range(3))
def test_p1_full_neumann_is_bptt(seed):
    full = sg.Implicit(sg.Neumann(steps=400))
    assert relative(gradient_of(full, seed=seed), gradient_of("bptt", seed=seed)) < 1e-12


@pytest.mark.parametrize("K", [0, 1, 5, 20])
def test_p2_neumann_is_truncated_bptt_at_a_steady_state(K):
    """The paper counts loosely: Neumann(K) has K+1 terms, so it equals TBPTT over K+1 applications of F."""
    assert relative(gradient_of(sg.Implicit(sg.Neumann(steps=K))), gradient_of(sg.TBPTT(steps=K + 1))) < 1e-12
    assert relative(gradient_of(sg.Implicit(sg.Neumann(steps=K))), gradient_of(sg.TBPTT(steps=K + 2))) > 1e-13


@given(family=st.sampled_from(FAMILIES), radius=st.floats(0.05, 0.95), K=st.integers(0, 12), seed=st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_p3_bound_on_the_truncated_series(family, radius, K, seed):
    J = matrix(family, radius, size=8, seed=seed)
    eye = torch.eye(8, dtype=J.dtype)
    inverse = torch.linalg.inv(eye - J)
    series = sum(torch.linalg.matrix_power(J, t) for t in range(K + 1))
    two = lambda M: torch.linalg.matrix_norm(M, 2)  # noqa: E731
    assert two(series - inverse) <= two(inverse) * two(J) ** (K + 1) + 1e-14
    # and what our solver returns is that series
    rows = torch.cat([sg.Neumann(steps=K).solve(DenseMap(J), e.unsqueeze(0)).z for e in eye])
    assert torch.allclose(rows, series, atol=1e-10 * max(1.0, two(series).item()))


@given(family=st.sampled_from(FAMILIES), radius=st.floats(0.05, 1.3), K=st.integers(0, 30), seed=st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_p4_rbp_from_zero_is_neumann(family, radius, K, seed):
    J = matrix(family, radius, size=8, seed=seed)
    b = torch.randn(1, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rbp = Recurrence(sg.Picard(max_steps=K + 1, rtol=0)).solve(DenseMap(J), b)
    neumann = sg.Neumann(steps=K).solve(DenseMap(J), b)
    assert relative(rbp.z, neumann.z) < 1e-12


@pytest.mark.parametrize("K", [1, 7, 20])
def test_p4_through_the_public_call(K):
    assert (
        relative(
            gradient_of(sg.Implicit(sg.Picard(max_steps=K + 1, rtol=0))),
            gradient_of(sg.Implicit(sg.Neumann(steps=K))),
        )
        < 1e-14
    )


def test_a_large_uniform_start_is_what_breaks_rbp():
    """Notes, item 1: from U[0,1] the error decays as ρᴷ‖z₀‖/‖b‖; from zero RBP is as good as Neumann."""
    J = matrix("random", 0.76, size=400)
    b = 1e-3 * torch.randn(1, 400, dtype=torch.float64)
    start = torch.rand(1, 400, dtype=torch.float64)
    residual = {}
    for K in (10, 20, 60):
        method = Recurrence(sg.Picard(max_steps=K, rtol=0))
        residual[K] = (method.solve(DenseMap(J), b, start).residual[0], method.solve(DenseMap(J), b).residual[0])
    assert residual[10][0] > 1 > residual[10][1]
    assert residual[60][0] < 0.01
    assert residual[10][0] > residual[20][0] > residual[60][0]


def test_epsilon_stop_of_algorithm_1():
    """Stop once ‖z_i − z_{i−1}‖ < ε."""
    J = matrix("random", 0.8)
    b = torch.randn(1, 20, dtype=torch.float64)
    epsilon = 1e-3
    solved = Recurrence(sg.Picard(rtol=1e-30, atol=epsilon)).solve(DenseMap(J), b)
    z, steps = torch.zeros_like(b), 0
    while True:
        new, steps = z @ J + b, steps + 1
        done = (new - z).norm() < epsilon
        z = new
        if done:
            break
    assert solved.status == [sg.Status.CONVERGED]
    assert torch.allclose(solved.z, z, rtol=1e-12)
