"""sg.diagnose against dense algebra, and its verdicts on cases whose answer is known."""

import json
import math
import random
import warnings

import pytest
import torch
from torch import nn

import steadygrad as sg
from problems import Affine, matrix, tanh_problem
from steadygrad.diagnose.checks import named_parameters

F64 = torch.float64
FATAL = "the gradient means nothing"


def kinds(diagnosis):
    return [finding.kind for finding in diagnosis.findings]


def linear(J):
    c = torch.ones(J.shape[0], dtype=J.dtype)
    return (lambda h: J @ h + c), torch.linalg.solve(torch.eye(J.shape[0], dtype=J.dtype) - J, c)


# --- numbers against dense algebra ---


@pytest.mark.parametrize("family", ["random", "symmetric", "nonnormal", "rotation"])
@pytest.mark.parametrize("radius", [0.5, 0.9, 1.3])
def test_numbers(family, radius):
    J = matrix(family, radius, size=40)
    F, h = linear(J)
    diagnosis = sg.diagnose(F, h)
    assert diagnosis.spectral_radius == pytest.approx(radius, rel=1e-6)
    assert diagnosis.norm == pytest.approx(torch.linalg.matrix_norm(J, 2).item(), rel=1e-3)
    smallest = torch.linalg.svdvals(torch.eye(40, dtype=F64) - J)[-1].item()
    assert diagnosis.min_singular_value == pytest.approx(smallest, rel=0.02)
    assert diagnosis.non_normality == pytest.approx(diagnosis.norm / radius, rel=1e-6)
    assert diagnosis.bounds == frozenset()


@pytest.mark.parametrize("family", ["random", "nonnormal", "rotation"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_radius_within_one_per_cent_in_512_dimensions(family, dtype):
    J = matrix(family, 0.9, size=512).to(dtype)
    F, h = linear(J)
    diagnosis = sg.diagnose(F, h, starts=False)
    assert diagnosis.spectral_radius == pytest.approx(0.9, rel=0.01)
    assert diagnosis.norm == pytest.approx(torch.linalg.matrix_norm(J, 2).item(), rel=0.01)
    smallest = torch.linalg.svdvals(torch.eye(512, dtype=dtype) - J)[-1].item()
    assert smallest * (1 - 1e-3) <= diagnosis.min_singular_value <= 1.1 * smallest


def test_rotation_is_a_complex_pair():
    c, s = 0.9 * math.cos(1.0), 0.9 * math.sin(1.0)
    J = torch.tensor([[c, -s], [s, c]], dtype=F64)
    F, h = linear(J)
    diagnosis = sg.diagnose(F, h)
    assert diagnosis.spectral_radius == pytest.approx(0.9, rel=1e-12)
    assert {round(abs(value.imag), 6) for value in diagnosis.eigenvalues} == {round(abs(s), 6)}


@pytest.mark.parametrize("family", ["random", "symmetric", "nonnormal", "rotation"])
@pytest.mark.parametrize("rtol", [1e-2, 1e-5, 1e-20])
def test_steps_are_just_enough(family, rtol):
    J = matrix(family, 0.9)
    F, h = linear(J)
    b = torch.randn(20, dtype=F64)
    K = sg.diagnose(F, h, cotangent=b).steps_for(rtol)
    z = torch.linalg.solve(torch.eye(20, dtype=F64) - J.T, b)

    def error(terms):
        return (torch.linalg.matrix_power(J.T, terms + 1) @ z).norm().item() / z.norm().item()

    assert error(K) <= rtol * (1.5 if rtol < 1e-12 else 1)  # beyond the terms observed, by extrapolation
    assert error(K - (1 if rtol > 1e-12 else 12)) > rtol


def test_steps_where_proposition_3_says_nothing():
    """‖J‖ = 4 makes the bound grow with K; the series converges all the same."""
    J = torch.tensor([[0.5, 4.0], [0.0, 0.4]], dtype=F64)
    F, h = linear(J)
    diagnosis = sg.diagnose(F, h)
    assert diagnosis.norm > 4
    assert diagnosis.steps_for(1e-3) < 20
    assert "non-normal" in kinds(diagnosis)
    assert diagnosis.trustworthy


def test_distance_is_the_newton_step():
    problem = Affine.of("random", 0.9)
    h = problem.steady() + 0.01
    diagnosis = sg.diagnose(problem, h, rtol=0.5)
    assert diagnosis.distance == pytest.approx((problem.steady() - h).norm().item() / h.norm().item(), rel=1e-3)


# --- all kinds of states ---


def test_batch_reports_its_worst_problem():
    radii = torch.tensor([0.2, 0.7, 0.4], dtype=F64)
    J = torch.stack([matrix("rotation", radius.item(), size=8) for radius in radii])
    h = torch.zeros(3, 8, dtype=F64)
    diagnosis = sg.diagnose(lambda h: (J @ h.unsqueeze(2)).squeeze(2), h, batch_dims=1)
    assert diagnosis.radii == pytest.approx(radii.tolist(), rel=1e-9)
    assert diagnosis.spectral_radius == pytest.approx(0.7)
    assert (diagnosis.problems, diagnosis.size) == (3, 8)
    assert sg.diagnose(lambda h: (J @ h.unsqueeze(2)).squeeze(2), h).spectral_radius == pytest.approx(0.7)


def test_batch_counts_the_problems_that_move():
    J = torch.tensor([[0.5], [-1.0], [0.5]], dtype=F64)
    diagnosis = sg.diagnose(lambda h: J * h + 1, torch.tensor([[2.0], [0.0], [2.0]], dtype=F64), batch_dims=1)
    assert diagnosis.motion.kind == "cycle"
    assert "1 of 3 problems" in diagnosis.verdict


def test_many_wide_problems_restart_together():
    J = torch.stack([matrix("rotation", 0.9, size=200, seed=seed) for seed in range(3)])
    h = torch.zeros(3, 200, dtype=F64)
    diagnosis = sg.diagnose(lambda h: (J @ h.unsqueeze(2)).squeeze(2), h, batch_dims=1, starts=False)
    assert diagnosis.radii == pytest.approx([0.9] * 3, rel=0.01)


def test_nested_state():
    cell = nn.LSTMCell(3, 5).double()
    x = torch.randn(2, 3, dtype=F64)
    h0 = (torch.zeros(2, 5, dtype=F64), torch.zeros(2, 5, dtype=F64))
    h = sg.steady_state(lambda h: cell(x, h), h0, forward=sg.Picard(max_steps=500, rtol=1e-10), gradient="bptt").value
    diagnosis = sg.diagnose(lambda h: cell(x, h), h, cotangent=(torch.ones(2, 5, dtype=F64), torch.zeros(2, 5, dtype=F64)))
    flat = torch.func.jacrev(lambda v: torch.cat(cell(x, (v[:10].view(2, 5), v[10:].view(2, 5)))).flatten())
    J = flat(torch.cat([leaf.flatten() for leaf in h]).detach())
    # The flat state of the library joins the leaves row by row or leaf by leaf: eigenvalues do not mind.
    assert diagnosis.spectral_radius == pytest.approx(torch.linalg.eigvals(J).abs().max().item(), rel=1e-6)
    assert diagnosis.trustworthy


def test_sparse_update():
    A = (0.3 * torch.eye(30, dtype=F64) + 0.3 * torch.diag(torch.ones(29, dtype=F64), 1)).to_sparse()
    x = torch.randn(30, 2, dtype=F64)
    F = lambda h: torch.sparse.mm(A, h) + x  # noqa: E731
    diagnosis = sg.diagnose(F, sg.steady_state(F, torch.zeros(30, 2, dtype=F64)).value)
    assert diagnosis.norm == pytest.approx(torch.linalg.matrix_norm(A.to_dense(), 2).item(), rel=1e-3)
    assert diagnosis.trustworthy


def test_float32_and_arguments():
    F, W, x, h0 = tanh_problem(dtype=torch.float32)
    solution = sg.steady_state(lambda h, x: torch.tanh(h @ W.T + x), h0, x)
    diagnosis = sg.diagnose(lambda h, x: torch.tanh(h @ W.T + x), solution.value, x, batch_dims=1)
    assert diagnosis.trustworthy
    assert diagnosis.problems == 3
    assert kinds(diagnosis) == ["sound"]


def test_products_only():
    """A dense J of this state would have 4·10⁸ entries."""
    weight = 0.9 * torch.rand(20_000)
    diagnosis = sg.diagnose(lambda h: weight * h.roll(1) + 1, torch.zeros(20_000), starts=False)
    assert diagnosis.products < 3000


# --- what the adjoint's certificate cannot see ---


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


# --- the four cases of the notes ---


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
    assert diagnosis.relative_residual > 0.01
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


# --- bad input, each with a clear statement ---


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
    with pytest.raises(TypeError, match=r"solution\.value"):
        sg.diagnose(F, sg.steady_state(F, h0))
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


# --- forms ---


def test_table_and_dict():
    F, W, x, h0 = tanh_problem()
    diagnosis = sg.diagnose(F, sg.steady_state(F, h0).value, parameters={"W": W})
    text = str(diagnosis)
    for expected in ("ρ(J)", "σ_min(I − J)", "Verdict:", "Advice:", "∂F/∂(W)", "products with J"):
        assert expected in text
    assert max(map(len, text.splitlines())) <= 96
    logged = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert logged["spectral_radius"] == diagnosis.spectral_radius
    assert logged["findings"] == ["sound"]


def test_plot():
    pytest.importorskip("matplotlib")
    F, W, x, h0 = tanh_problem()
    h = sg.steady_state(F, h0).value
    for update, state in [(F, h), (F, h0), (lambda h: torch.ones(3), torch.ones(3)), (lambda h: h * math.nan, torch.ones(3))]:
        figure = sg.diagnose(update, state).plot()
        figure.canvas.draw()
        assert [axes.get_xlabel() for axes in figure.axes] == ["step", "real part", "k"]
    drawn = sg.diagnose(F, h).plot().axes[2].lines[0].get_ydata()
    assert len(drawn) > 5


# --- the live check ---


class Cell(nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.W = nn.Parameter(gain * matrix("rotation", 1.0, size=6))

    def forward(self, x, h):
        return torch.tanh(x if h is None else h @ self.W.T + x)


def test_history():
    layer = sg.Equilibrium(Cell(0.3), diagnose_every=2)
    x = torch.zeros(3, 6, dtype=F64) + 0.1
    for _ in range(5):
        layer(x).sum().backward()
    assert [entry.call for entry in layer.history] == [1, 3, 5]
    for entry in layer.history:
        assert 0.2 < entry.spectral_radius < 0.3
        assert entry.adjoint_residual < 1e-9
        assert entry.relative_residual < 1e-4
    assert layer.history.to_dicts()[0]["call"] == 1
    assert not layer.history.warned
    layer.eval()
    layer(x)
    assert len(layer.history) == 3
    with pytest.raises(sg.SteadyStateError, match="diagnose_every=100"):
        sg.Equilibrium(Cell(0.3)).history  # noqa: B018
    with pytest.raises(ValueError, match="diagnose_every"):
        sg.Equilibrium(Cell(0.3), diagnose_every=-1)


def test_history_warns_once():
    layer = sg.Equilibrium(Cell(0.3), diagnose_every=1, forward=sg.Picard(rtol=0, max_steps=30))
    x = torch.zeros(1, 6, dtype=F64) + 1e-3
    layer(x)
    with torch.no_grad():
        layer.cell.W.mul_(5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer(x)
        layer(x)
    said = [str(w.message) for w in caught if "assumptions" in str(w.message)]
    assert len(said) == 1
    assert "forward call 2" in said[0]
    assert "ρ(J) = 1." in said[0]


def test_history_survives_copies():
    import copy
    import pickle

    layer = sg.Equilibrium(Cell(0.3), diagnose_every=1)
    layer(torch.ones(1, 6, dtype=F64)).sum().backward()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.history.entries == layer.history.entries


def test_history_plot():
    pytest.importorskip("matplotlib")
    layer = sg.Equilibrium(Cell(0.3), diagnose_every=1)
    for _ in range(3):
        layer(torch.ones(1, 6, dtype=F64)).sum().backward()
    figure = layer.history.plot()
    figure.canvas.draw()
    assert len(figure.axes[0].lines[0].get_ydata()) == 3
