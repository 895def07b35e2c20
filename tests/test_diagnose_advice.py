"""sg.diagnose says what it does, can be quick, and does not advise what is done already."""

import io
import math
import sys

import pytest
import torch
from torch import nn

import steadygrad as sg
from diagnoses import F64, kinds, linear
from problems import matrix, tanh_problem


def rotation(period):
    angle = 2 * math.pi / period
    return torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=F64)


class TestQuick:
    def test_a_tenth_of_the_products(self):
        J = matrix("random", 0.9, size=300)
        F, h = linear(J)
        thorough, quick = (sg.diagnose(F, h, quick=quick) for quick in (False, True))
        assert quick.products < 160
        assert quick.products < thorough.products / 3
        assert quick.evaluations < thorough.evaluations / 2
        assert quick.spectral_radius == pytest.approx(0.9, rel=0.1)
        assert quick.norm <= torch.linalg.matrix_norm(J, 2).item() * (1 + 1e-9)
        assert quick.min_singular_value >= torch.linalg.svdvals(torch.eye(300, dtype=F64) - J)[-1].item() * (1 - 1e-9)
        assert quick.starts == ()

    def test_what_has_not_settled_says_so(self):
        F, h = linear(matrix("random", 0.9, size=300))
        assert {"norm", "min_singular_value"} <= sg.diagnose(F, h, quick=True).bounds

    @pytest.mark.parametrize("broken", ["moves", "detached", "singular", "slow"])
    def test_still_finds(self, broken):
        F, W, x, h0 = tanh_problem()
        h = sg.steady_state(F, h0).value.detach()
        update, state = {
            "moves": (F, h0),
            "detached": (lambda h: torch.tanh((0.9 * h + 0.1 * h.detach()) @ W.T + x), h),
            "singular": (lambda h: h.clone(), h),
            "slow": (lambda h: h + 1e-6 * (1 - h), h),
        }[broken]
        assert sg.diagnose(F, h, quick=True).trustworthy
        assert not sg.diagnose(update, state, quick=True).trustworthy


class TestProgress:
    def test_names_the_parts_to_a_callback(self):
        F, h = linear(matrix("random", 0.9))
        parts = []
        sg.diagnose(F, h, progress=parts.append)
        assert parts[0] == "motion of the state"
        assert "eigenvalues of J" in parts
        assert parts[-1] == "derivative against differences"

    @pytest.mark.parametrize("terminal", [True, False])
    def test_a_line_on_a_terminal_alone_and_wiped_at_the_end(self, monkeypatch, terminal):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda: terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(sys.modules["steadygrad.diagnose.progress"], "PATIENCE", -1.0)
        F, h = linear(matrix("random", 0.9))
        sg.diagnose(F, h)
        written = stream.getvalue()
        assert ("eigenvalues of J" in written) is terminal
        assert not terminal or (written.endswith("\r") and not written.split("\r")[-2].strip())

    def test_the_line_is_wiped_if_f_raises(self, monkeypatch):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(sys.modules["steadygrad.diagnose.progress"], "PATIENCE", -1.0)
        calls = []

        def breaks(h):
            calls.append(h)
            if len(calls) > 5:
                raise ZeroDivisionError
            return 0.5 * h

        with pytest.raises(ZeroDivisionError):
            sg.diagnose(breaks, torch.ones(3))
        assert stream.getvalue().endswith("\r")


class TestAdvice:
    def test_a_cycle_under_damping(self):
        update = rotation(3).mv
        state = torch.ones(2, dtype=F64)
        assert "damping" in sg.diagnose(update, state).advice
        told = sg.diagnose(update, state, forward=sg.Picard(damping=0.5)).advice
        assert "damping" not in told
        assert "Anderson" in told
        assert "Anderson" not in sg.diagnose(update, state, forward=sg.Anderson()).advice

    def test_a_slow_state_under_anderson(self):
        target = torch.linspace(1, 2, 6, dtype=F64)
        told = sg.diagnose(lambda h: h + 1e-5 * (target - h), 3 * target, forward=sg.Anderson())
        assert "slow" in kinds(told)
        assert "Anderson" not in told.advice
        assert "Newton" in told.advice

    @pytest.mark.parametrize("gradient", ["auto", "gmres", sg.Implicit(sg.Auto())], ids=str)
    def test_an_expansive_map_under_a_solver_that_does_not_mind(self, gradient):
        F, h = linear(matrix("rotation", 1.4))
        assert "need only that I − J is invertible" in sg.diagnose(F, h).advice
        assert "need only that I − J is invertible" not in sg.diagnose(F, h, gradient=gradient).advice
        assert "need only that I − J is invertible" in sg.diagnose(F, h, gradient="neumann-rbp").advice

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_float64_only_below_it(self, dtype):
        jumps = sg.diagnose(lambda h: 0.5 * h + 0.1 * torch.sign(h), torch.zeros(5, dtype=dtype))
        assert kinds(jumps)[0] == "not differentiable"
        assert ("float64" in jumps.advice) == (dtype is torch.float32)

    def test_a_solution_brings_its_state_and_its_solver(self):
        F, W, x, h0 = tanh_problem()
        solution = sg.steady_state(F, h0, gradient="auto")
        solution.value.sum().backward()
        diagnosis = sg.diagnose(F, solution)
        assert diagnosis.trustworthy
        assert diagnosis.relative_residual == sg.diagnose(F, solution.value).relative_residual


@pytest.mark.parametrize("need_weights", [True, False])
def test_fused_attention_has_products_with_j(need_weights):
    torch.manual_seed(0)
    attend = nn.MultiheadAttention(4, 2, batch_first=True).double()
    x = torch.randn(1, 3, 4, dtype=F64)

    def update(h):
        return 0.5 * torch.tanh(attend(h, h, h, need_weights=need_weights)[0] + x)

    h = sg.steady_state(update, torch.zeros_like(x), gradient="gmres").value.detach()
    diagnosis = sg.diagnose(update, h)
    assert diagnosis.unknown == {}
    J = torch.autograd.functional.jacobian(lambda v: update(v.view(1, 3, 4)).flatten(), h.flatten())
    assert diagnosis.norm == pytest.approx(torch.linalg.matrix_norm(J, 2).item(), rel=1e-3)
    assert diagnosis.trustworthy
