"""The verdicts of sg.diagnose on cases whose answer is known, and on bad input."""

import json
import math

import pytest
import torch
from torch import nn

import steadygrad as sg
from diagnoses import F64, FATAL, kinds
from problems import Affine, tanh_problem
from steadygrad.diagnose.checks import named_parameters


def test_hopfield_is_no_contraction_and_converges():
    """A small memory: J = W diag(b φ'(bh)) with symmetric W has ρ < 1 < ‖J‖, and the verdict is good."""
    generator = torch.Generator().manual_seed(1)
    W = 0.4 * torch.randn(80, 80, generator=generator, dtype=F64)
    W = W + W.T
    W.fill_diagonal_(0)
    clamped = 8 * torch.randn(80, generator=generator, dtype=F64)
    F = lambda h: W @ torch.sigmoid(h) + clamped  # noqa: E731
    h = sg.steady_state(F, torch.zeros(80, dtype=F64), forward=sg.Picard(max_steps=500, rtol=1e-10)).value
    diagnosis = sg.diagnose(F, h)
    D = torch.diag(torch.sigmoid(h) * (1 - torch.sigmoid(h)))
    assert diagnosis.spectral_radius == pytest.approx(torch.linalg.eigvals(W @ D).abs().max().item(), rel=1e-3)
    assert diagnosis.spectral_radius < 1 < diagnosis.norm
    assert diagnosis.trustworthy
    assert kinds(diagnosis)[:2] == ["sound", "non-normal"]
    assert "Neumann" in diagnosis.advice


def test_published_graph_network_is_not_steady():
    """x only in h₀, a GRU fed with the sum of the neighbours, Kaiming weights, T = 100: it never settles."""
    generator = torch.Generator().manual_seed(0)
    A = (torch.rand(120, 120, generator=generator) < 0.1).float()
    A = ((A + A.T) > 0).float()
    torch.manual_seed(2)
    cell = nn.GRUCell(16, 16)
    for name, parameter in cell.named_parameters():
        nn.init.kaiming_normal_(parameter) if "weight" in name else nn.init.zeros_(parameter)
    F = lambda h: cell(A @ h, h)  # noqa: E731
    h = torch.randn(120, 16, generator=generator)
    with torch.no_grad():
        for _ in range(100):
            h = F(h)
    diagnosis = sg.diagnose(F, h)
    assert FATAL in diagnosis.verdict
    assert not diagnosis.trustworthy
    # A hundred times the tolerance: how far it moves in the last step differs from processor to processor (0.4 to 9 %).
    assert diagnosis.relative_residual > 1e-3
    assert diagnosis.spectral_radius > 1


def test_sgd_as_update_is_degenerate_in_rate_and_momentum():
    generator = torch.Generator().manual_seed(0)
    X, y = torch.randn(30, 4, generator=generator, dtype=F64), torch.randn(30, generator=generator, dtype=F64)
    rate, momentum, decay = (torch.tensor(value, dtype=F64, requires_grad=True) for value in (0.5, 0.5, 0.1))

    def step(state):
        w, m = state
        g = X.T @ (X @ w - y) / 30 + decay * w
        m = momentum * m - (1 - momentum) * g
        return w + rate * m, m

    start = (torch.zeros(4, dtype=F64), torch.zeros(4, dtype=F64))
    state = sg.steady_state(step, start, forward=sg.Picard(max_steps=3000, rtol=1e-10)).value
    diagnosis = sg.diagnose(step, state, parameters={"rate": rate, "momentum": momentum, "decay": decay})
    assert {name: found.kind for name, found in diagnosis.parameters.items()} == {
        "rate": "degenerate", "momentum": "degenerate", "decay": "moves",
    }  # fmt: skip
    assert "does not depend on rate, momentum" in diagnosis.verdict
    assert "weight decay" in diagnosis.advice
    unfinished = (torch.ones(4, dtype=F64), torch.zeros(4, dtype=F64))
    early = sg.diagnose(step, unfinished, parameters={"rate": rate})
    assert early.parameters["rate"].kind == "moves"
    assert FATAL in early.verdict


def test_contraction_is_sound():
    F, W, x, h0 = tanh_problem()
    diagnosis = sg.diagnose(F, sg.steady_state(F, h0, forward=sg.Picard(rtol=1e-10)).value, parameters=[W, x])
    assert kinds(diagnosis) == ["sound"]
    assert [start.outcome for start in diagnosis.starts] == ["same"] * 3
    assert {found.kind for found in diagnosis.parameters.values()} == {"moves"}
    assert diagnosis.verdict.startswith("The assumptions hold")


def test_not_near_a_steady_state():
    F, W, x, h0 = tanh_problem()
    diagnosis = sg.diagnose(F, h0)
    assert diagnosis.motion.kind == "approaching"
    assert FATAL in diagnosis.verdict
    more = math.ceil(diagnosis.motion.steps_left)
    assert f"{more} more steps" in diagnosis.advice
    later = sg.steady_state(F, h0, forward=sg.Picard(max_steps=more + 5, rtol=0), gradient="bptt").value
    assert sg.diagnose(F, later).trustworthy


def test_slow_drift_is_not_taken_for_rest():
    """Moves of 1e-5 a step look like convergence; the steady state is far away."""
    target = torch.linspace(1, 2, 6, dtype=F64)
    diagnosis = sg.diagnose(lambda h: h + 1e-5 * (target - h), torch.full((6,), 3.0, dtype=F64))
    assert diagnosis.relative_residual < 1e-4
    assert "moves slowly" in diagnosis.verdict
    assert not diagnosis.trustworthy


@pytest.mark.parametrize("where", ["F", "h"])
def test_nan(where):
    h = torch.full((3,), math.nan if where == "h" else 1.0)
    diagnosis = sg.diagnose(lambda h: 0.5 * h * (math.nan if where == "F" else 1.0), h)
    assert "inf or NaN" in diagnosis.verdict
    assert not diagnosis.trustworthy
    assert math.isnan(diagnosis.spectral_radius)
    json.dumps(diagnosis.to_dict(), allow_nan=False)
    assert "?" in str(diagnosis)


def test_one_element():
    diagnosis = sg.diagnose(lambda h: 0.5 * h + 1, torch.tensor(2.0))
    assert (diagnosis.spectral_radius, diagnosis.norm, diagnosis.min_singular_value) == pytest.approx((0.5, 0.5, 0.5))
    assert diagnosis.trustworthy
    assert "1 element\n" in str(diagnosis)


@pytest.mark.parametrize("constant", [lambda h: 0 * h + 1, lambda h: torch.ones(4)], ids=["multiplied by 0", "no path"])
def test_zero_jacobian(constant):
    diagnosis = sg.diagnose(constant, torch.ones(4))
    assert diagnosis.spectral_radius == 0
    assert diagnosis.norm == 0
    assert "constant" in kinds(diagnosis)
    assert diagnosis.trustworthy


def test_identity_jacobian():
    diagnosis = sg.diagnose(lambda h: h.clone(), torch.ones(4))
    assert diagnosis.spectral_radius == pytest.approx(1)
    assert "singular" in kinds(diagnosis)
    assert "not isolated" in diagnosis.verdict
    assert diagnosis.steps_for(1e-2) is None
    assert not diagnosis.trustworthy


def test_expansive_but_invertible():
    """A steady state that F runs away from: Newton finds it, GMRES differentiates it, the series does not."""
    problem = Affine.of("rotation", 1.4)
    diagnosis = sg.diagnose(problem, problem.steady())
    assert "expansive" in kinds(diagnosis)
    assert diagnosis.trustworthy
    assert diagnosis.steps_for(1e-2) is None
    assert "gmres" in diagnosis.advice
    assert "sg.penalty" in diagnosis.advice


def test_several_steady_states():
    diagnosis = sg.diagnose(lambda h: torch.tanh(3 * h), torch.tensor([0.9949], dtype=F64), rtol=1e-3)
    assert "several" in kinds(diagnosis)
    assert {start.name: start.outcome for start in diagnosis.starts}["zeros"] == "other"


@pytest.mark.parametrize("period", [2, 3, 5])
def test_cycle(period):
    angle = 2 * math.pi / period
    J = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=F64)
    diagnosis = sg.diagnose(lambda h: J @ h, torch.ones(2, dtype=F64))
    assert diagnosis.motion.period == period
    assert f"cycle of period {period}" in diagnosis.verdict
    assert "damping" in diagnosis.advice


def test_growth():
    diagnosis = sg.diagnose(lambda h: 1.5 * h + 1, torch.ones(3))
    assert diagnosis.motion.kind == "growing"
    assert FATAL in diagnosis.verdict


def test_refusals():
    F, W, x, h0 = tanh_problem()
    with pytest.raises(TypeError, match="callable"):
        sg.diagnose(3, h0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        sg.diagnose(F, h0, rtol=0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        sg.diagnose(F, h0).steps_for(2)
    with pytest.raises(ValueError, match="they must agree"):
        sg.diagnose(F, h0, cotangent=(h0, h0))
    with pytest.raises(TypeError, match=r"parameters=\[theta\]"):
        sg.diagnose(F, h0, parameters=W)
    with pytest.raises(sg.SteadyStateError, match="needs no gradient"):
        sg.diagnose(F, h0, parameters=[h0])
    with pytest.raises(sg.SteadyStateError, match="no tensor that needs"):
        sg.diagnose(F, h0, parameters=[])


def test_unused_parameter():
    F, W, x, h0 = tanh_problem()
    other = torch.ones(3, requires_grad=True)
    diagnosis = sg.diagnose(F, sg.steady_state(F, h0).value, parameters={"W": W, "other": other})
    assert diagnosis.parameters["other"].kind == "unused"
    assert "does not use other" in diagnosis.verdict


def test_parameters_by_name():
    module = nn.Linear(2, 2)
    assert list(named_parameters(module)) == ["weight", "bias"]
    assert list(named_parameters(module.named_parameters())) == ["weight", "bias"]
    assert list(named_parameters(module.parameters())) == ["parameters[0]", "parameters[1]"]
