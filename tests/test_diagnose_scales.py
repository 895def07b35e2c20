"""sg.diagnose does not depend on units, and every leaf of a state counts."""

import math

import pytest
import torch

import steadygrad as sg
from diagnoses import F64, kinds, linear
from problems import tanh_problem
from steadygrad.iteration.norms import leaf_norms
from steadygrad.state import Layout


@pytest.mark.parametrize("scale, shift", [(1e-3, 0), (1e-5, 0), (1e-8, 0), (1e8, 0), (1.0, 300.0)])
def test_scales(scale, shift):
    _, W, x, _ = tanh_problem(dtype=torch.float32)
    W, x = W.detach(), x.detach()[0]
    F = lambda h: shift + scale * torch.tanh(W @ ((h - shift) / scale) + x)  # noqa: E731
    diagnosis = sg.diagnose(F, sg.steady_state(F, torch.full((12,), float(shift))).value)
    assert kinds(diagnosis)[0] == "sound"


def test_scales_in_one_batch():
    _, W, x, _ = tanh_problem(dtype=torch.float32)
    W = W.detach()
    s = torch.tensor([[1.0], [1e2], [1e4]])
    F = lambda h, s, x: s * torch.tanh((h / s) @ W.T + x)  # noqa: E731
    h = sg.steady_state(F, torch.zeros(3, 12), s, x, batch_dims=1).value
    assert sg.diagnose(F, h, s, x, batch_dims=1).trustworthy


def test_bfloat16_at_its_rounding():
    _, W, x, _ = tanh_problem(dtype=torch.float32)
    W, x = W.detach().bfloat16(), x.detach()[0].bfloat16()
    h = torch.zeros(12).bfloat16()
    for _ in range(100):
        h = torch.tanh(W @ h + x)
    assert sg.diagnose(lambda h: torch.tanh(W @ h + x), h).trustworthy


def test_ill_scaled_is_not_singular():
    S = torch.diag(torch.tensor([1.0, 1e4], dtype=F64))
    A = S @ torch.tensor([[0.5, 0.3], [0.3, 0.5]], dtype=F64) @ torch.linalg.inv(S)
    F, h = linear(A)
    assert "singular" not in kinds(sg.diagnose(F, h))


@pytest.mark.parametrize("shift", [0.0, 1e-12])
def test_unique_steady_state_at_or_near_zero(shift):
    diagnosis = sg.diagnose(lambda h: 0.5 * h + shift, torch.full((3,), 2 * shift, dtype=F64))
    assert {start.outcome for start in diagnosis.starts} == {"same"}


def test_extreme_magnitudes():
    assert not sg.diagnose(lambda h: 0.5 * h.detach() + 0.1 * h + 0.4e20, torch.full((5,), 1e20)).trustworthy
    assert sg.diagnose(lambda h: -h + 1e20, torch.full((5,), 0.9e20)).motion.kind == "cycle"
    assert not sg.diagnose(lambda h: 0.5 * h + 1e-25, torch.full((5,), 1e-26)).trustworthy
    for size in (1e-25, 1.0, 1e25):
        assert sg.diagnose(lambda h: 0.5 * h + 1, torch.full((5,), 2.0), cotangent=torch.full((5,), size)).steps_for(1e-3) == 9


def test_rounding_is_not_randomness():
    calls = []

    def flicker(h):
        calls.append(1)
        return (0.5 * h + 1) * (1 + 1e-7 * (len(calls) % 2))

    assert sg.diagnose(flicker, torch.full((5,), 2.0)).trustworthy


class TestLeaves:
    """A state of positions of 1e5 and fractions of 0.2."""

    @staticmethod
    def update(state):
        return {"p": 0.5 * state["p"] + 5e4, "f": 0.2 * torch.tanh(0.9 * state["f"] + 1)}

    def steady(self, dtype=F64):
        state = {"p": torch.full((4,), 1e5, dtype=dtype), "f": torch.zeros(3, dtype=dtype)}
        for _ in range(100):
            state = self.update(state)
        return state

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_at_rest(self, dtype):
        diagnosis = sg.diagnose(self.update, self.steady(dtype))
        assert kinds(diagnosis)[0] == "sound"
        assert {start.outcome for start in diagnosis.starts} == {"same"}

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_the_small_leaf_moves(self, dtype):
        state = self.steady(dtype)
        diagnosis = sg.diagnose(self.update, state | {"f": 1.5 * state["f"]})
        assert diagnosis.relative_residual > 0.1
        assert diagnosis.distance == pytest.approx(0.5 / 1.5, rel=0.1)
        assert not diagnosis.trustworthy

    def test_the_small_leaf_has_a_detached_path(self):
        def wrong(state):
            return self.update({"p": state["p"], "f": 0.5 * state["f"] + 0.5 * state["f"].detach()})

        assert "wrong derivative" in kinds(sg.diagnose(wrong, self.steady()))

    def test_the_small_leaf_is_random(self):
        def noisy(state):
            image = self.update(state)
            return image | {"f": image["f"] + 0.01 * torch.randn(3, dtype=F64)}

        assert sg.diagnose(noisy, self.steady()).randomness > 0.01

    def test_another_start_that_changes_the_small_leaf_alone(self):
        def double_well(state):
            return {"p": 0.5 * state["p"] + 5e4, "f": 0.2 * torch.tanh(15 * state["f"])}

        state = {"p": torch.full((4,), 1e5, dtype=F64), "f": torch.full((3,), 0.2, dtype=F64)}
        for _ in range(100):
            state = double_well(state)
        assert "several" in kinds(sg.diagnose(double_well, state))

    @pytest.mark.parametrize("steps", [300, 1000, 3000])
    def test_a_leaf_that_rests_at_zero(self, steps):
        """The momentum of SGD: its relative change never falls, and it need not."""
        X, y = torch.randn(30, 4, dtype=F64), torch.randn(30, dtype=F64)

        def step(state):
            w, m = state
            m = 0.9 * m - 0.1 * (X.T @ (X @ w - y) / 30 + 0.1 * w)
            return w + 0.3 * m, m

        state = (torch.zeros(4, dtype=F64), torch.zeros(4, dtype=F64))
        for _ in range(steps):
            state = step(state)
        assert 0 < state[1].norm() < 1e-4
        assert sg.diagnose(step, state).trustworthy


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("scale", [1.0, 1e7])
def test_coupled_leaves_of_different_units(scale, dtype):
    """In the user's units J holds 1e7 beside 1e-7, which rounding in float32 cannot tell from a singular I − J."""
    M, x = 0.3 * torch.randn(3, 4, dtype=dtype), torch.randn(3, dtype=dtype)

    def update(state):
        p, f = state
        return 0.5 * p + scale * torch.tanh(1 + 0.1 * f.sum()), torch.tanh(0.4 * f + x + M @ (p / scale))

    state = (torch.full((4,), scale, dtype=dtype), torch.zeros(3, dtype=dtype))
    for _ in range(200):
        state = update(state)
    diagnosis = sg.diagnose(update, state)
    assert kinds(diagnosis)[0] == "sound"
    assert diagnosis.norm < 10
    flat = torch.func.jacrev(lambda v: torch.cat(update((v[:4] * scale, v[4:]))) / torch.tensor([scale] * 4 + [1.0] * 3))
    J = flat(torch.cat([state[0] / scale, state[1]]))
    assert diagnosis.spectral_radius == pytest.approx(torch.linalg.eigvals(J).abs().max().item(), rel=0.01)


def test_a_detached_path_beside_a_leaf_that_rests_at_zero():
    def step(state):
        w, m = state
        m = 0.9 * m - 0.1 * (w - 1)
        return 0.5 * w + 0.5 * w.detach() + 0.3 * m, m

    state = (torch.ones(4, dtype=F64) + 1e-9, torch.full((4,), 1e-9, dtype=F64))
    assert "wrong derivative" in kinds(sg.diagnose(step, state))


@pytest.mark.parametrize("dtype, exponent", [(torch.float32, -30), (torch.float32, 30), (F64, -250), (F64, 250)])
def test_squares_outside_the_range_of_the_dtype(dtype, exponent):
    scale = 10.0**exponent
    W, x = 0.25 * torch.randn(4, 4, dtype=dtype), torch.randn(4, dtype=dtype)
    update = lambda h: scale * torch.tanh(W @ (h / scale) + x)  # noqa: E731
    h = torch.zeros(4, dtype=dtype)
    for _ in range(200):
        h = update(h)
    diagnosis = sg.diagnose(update, h, quick=True)
    assert kinds(diagnosis)[0] == "sound"
    assert diagnosis.distance < 1e-5
    moved = sg.diagnose(update, 1.2 * h, quick=True)
    assert moved.motion.kind == "approaching"
    assert not moved.trustworthy


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_leaf_norms(size):
    a, b = size * torch.randn(2, 3), torch.randn(2, 2, 2)
    layout = Layout.of((a, b), batch_dims=1)
    norms = torch.from_numpy(leaf_norms([layout.flatten([a, b])], layout.sizes)[0]).float()
    assert torch.allclose(norms[:, 0] / size, (a / size).norm(dim=1))
    assert torch.allclose(norms[:, 1], b.flatten(1).norm(dim=1))
    flat = torch.tensor([[0.0, 0, 0, math.inf, 1, 1, 1], [math.nan, 1, 1, 1, 1, 1, 1]])
    found = leaf_norms([flat], layout.sizes)[0]
    assert found[0].tolist() == [0, math.inf]
    assert math.isnan(found[1, 0])
