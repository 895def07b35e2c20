"""Steps and products in torch.compile graphs are equal to the eager ones, and so is what a solve says of them."""

import pytest
import torch
from torch import nn

from compiling import CHUNK, STEPS, advance, builds, closure, eager_series, eager_steps, updates
from problems import relative, tanh_problem
from steadygrad import Implicit, Neumann, Picard, SteadyStateError, SteadyStateWarning, steady_state
from steadygrad.update import capture
from steadygrad.update.compiled import CompiledJacobian, CompiledUpdate
from steadygrad.update.jacobian import Jacobian

pytestmark = pytest.mark.usefixtures("forgotten")


def bound_method(dtype):
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(0.1 * torch.randn(6, 6, dtype=dtype))

        def step(self, h):
            return torch.tanh(h @ self.weight + 1)

    return Cell().step, torch.zeros(3, 6, dtype=dtype), (), 0


def nested(dtype):
    cell = nn.LSTMCell(4, 6, dtype=dtype)

    def lstm(state, x):
        h, c = cell(x, (state["h"], state["inner"][0]))
        return {"inner": [c], "h": h}  # another order than the state's

    zeros = torch.zeros(3, 6, dtype=dtype)
    return lstm, {"h": zeros, "inner": [zeros]}, (torch.randn(3, 4, dtype=dtype),), 1


def transposing(dtype):
    W = 0.1 * torch.randn(3, 3, dtype=dtype)
    return lambda h: torch.tanh((h.T @ W).T + 1), torch.zeros(3, 4, dtype=dtype), (), 0


PROBLEMS = [closure, bound_method, nested, transposing]
CASES = [
    *[(problem, torch.float64, 1e-12, "eager") for problem in PROBLEMS],
    *[(problem, torch.float64, 1e-12, "inductor") for problem in (closure, nested)],  # building takes seconds
    (closure, torch.float32, 1e-6, "inductor"),
]


@pytest.mark.parametrize("problem, dtype, rtol, backend", CASES)
def test_equal_to_the_eager_steps_and_to_dense_products(problem, dtype, rtol, backend, monkeypatch):
    monkeypatch.setattr(capture, "BACKEND", backend)
    F, h0, args, batch_dims = problem(dtype)
    update, flat = updates(F, h0, *args, batch_dims=batch_dims)
    damping = 0.25 if problem is closure else 0.0
    h, before = CompiledUpdate(update, CHUNK).advance(flat, STEPS, damping)[:2]
    expected, expected_before = eager_steps(update, flat, STEPS, damping)
    assert relative(h, expected) < rtol
    assert relative(before, expected_before) < rtol
    assert not h.requires_grad

    v = torch.randn_like(h)
    jacobian = CompiledJacobian(Jacobian(update, h), CHUNK)
    total, last, _ = jacobian.add_terms(torch.zeros_like(v), v, STEPS)
    assert jacobian.products == STEPS
    terms, expected_last = eager_series(jacobian.dense(), v, STEPS)
    assert relative(total, terms) < rtol
    assert relative(last, expected_last) < rtol
    assert builds() == [1]


def test_before_the_last_is_right_when_a_graph_comes_last(traced):
    update, flat = updates(*closure(torch.float64)[:2])
    found = CompiledUpdate(update, CHUNK).advance(flat, 4)[:2]
    for a, b in zip(found, eager_steps(update, flat, 4), strict=True):
        assert relative(a, b) < 1e-12


@pytest.mark.parametrize("rows", [8, 2048])
def test_compiled_steps_do_not_run_far_past_the_tolerance(rows, traced):
    torch.manual_seed(0)
    W, x = 0.8 * torch.linalg.qr(torch.randn(16, 16))[0], torch.randn(rows, 16)

    def steps(compiled):
        start, forward = torch.zeros(rows, 16), Picard(max_steps=500)
        return steady_state(lambda h: torch.tanh(h @ W.T + x), start, forward=forward, compile=compiled).steps

    eager, compiled = steps(False), steps(True)
    assert compiled <= eager + (0 if rows > 1000 else 10)


COUNTS = {"forward": Picard(max_steps=12, rtol=0), "gradient": Implicit(Neumann(steps=11))}
TOLERANCES = {"forward": Picard(max_steps=200, rtol=1e-6), "gradient": Implicit(Neumann(rtol=1e-8))}


@pytest.mark.parametrize("options", [COUNTS, TOLERANCES], ids=["counts", "tolerances"])
def test_gradients_and_certificates_are_those_of_the_eager_solve(options, traced):
    F, W, x, h0 = tanh_problem(size=6)

    def solved(**how):
        solution = steady_state(F, h0, **options, **how)
        gradients = torch.autograd.grad(solution.value.square().sum(), [W, x])
        assert solution.adjoint is not None
        return solution, gradients, solution.adjoint

    (eager, expected, certificate), (compiled, found, other) = solved(), solved(compile=True)
    assert compiled.status is eager.status
    assert other.status is certificate.status
    for a, b in zip(found, expected, strict=True):
        assert relative(a, b) < (1e-12 if options is COUNTS else 1e-5)
    if options is COUNTS:
        assert (compiled.steps, other.products) == (eager.steps, certificate.products)
        assert compiled.error_estimate == pytest.approx(eager.error_estimate, rel=1e-2)
        assert other.residual == pytest.approx(certificate.residual, rel=1e-9)
        assert other.error_estimate == pytest.approx(certificate.error_estimate, rel=1e-6)
    else:
        assert compiled.error_estimate < 1e-4
        assert other.error_estimate < 1e-6


def test_parameters_changed_between_the_passes_are_an_error(traced):
    F, W, _, h0 = tanh_problem(size=6)
    solution = steady_state(F, h0, **COUNTS, compile=True)
    with torch.no_grad():
        W.mul_(0.5)
    with pytest.raises(RuntimeError, match=r"inplace|in place"):
        solution.value.sum().backward()


@pytest.mark.parametrize("options", [COUNTS, TOLERANCES], ids=["counts", "tolerances"])
def test_a_constant_changed_between_the_passes_is_an_error_also_where_only_products_need_it(options, traced):
    _, W, x, h0 = tanh_problem(size=6)
    W, x = W.detach().clone(), x.detach().clone().requires_grad_()
    solution = steady_state(lambda h: torch.tanh(h @ W.T + x), h0, **options, compile=True)
    W.mul_(0.5)
    with pytest.raises(SteadyStateError, match="inplace"):
        torch.autograd.grad(solution.value.sum(), x)


def test_batch_norm_that_writes_into_its_buffers_has_its_products_taken_eagerly(traced):
    norm = nn.BatchNorm1d(6, dtype=torch.float64)
    _, W, x, h0 = tanh_problem(size=6)

    def update(h):
        return torch.tanh(0.2 * norm(h @ W.T + x))

    def gradient(compile):
        value = steady_state(update, h0, **COUNTS, compile=compile).value
        return torch.autograd.grad(value.square().sum(), W)[0]

    with pytest.warns(SteadyStateWarning, match="eagerly"):
        compiled = gradient(True)
    torch.testing.assert_close(compiled, gradient(False))


@pytest.mark.parametrize("options", [COUNTS, TOLERANCES], ids=["counts", "tolerances"])
def test_divergence_is_seen_as_early_as_in_the_eager_solve(options, traced):
    W, x = (3 * torch.eye(4, dtype=torch.float64)).requires_grad_(), torch.ones(2, 4, dtype=torch.float64)
    found = [
        steady_state(lambda h: h @ W + x, torch.zeros_like(x), **options, on_failure="ignore", compile=how)
        for how in (False, True)
    ]
    for solution in found:
        solution.value.sum().backward()
    assert found[0].status is found[1].status
    assert found[0].steps == found[1].steps
    assert found[0].adjoint.status is found[1].adjoint.status
    assert found[1].adjoint.residual == pytest.approx(found[0].adjoint.residual)


def test_nan_of_the_first_call_is_an_error(traced):
    with pytest.raises(SteadyStateError, match="first call"):
        steady_state(lambda h: torch.log(h - 1), torch.zeros(2, 3), compile=True)


def test_what_an_update_hands_through_or_ignores(traced):
    c = torch.randn(3, 4, dtype=torch.float64)

    def handing(state):
        return {"h": 0.5 * torch.tanh(state["h"]) + state["c"], "c": state["c"]}

    for F, h0 in [(handing, {"h": torch.zeros_like(c), "c": c}), (lambda h: c, torch.zeros_like(c))]:
        update, flat = updates(F, h0)
        assert relative(CompiledUpdate(update, CHUNK).advance(flat, 4)[0], eager_steps(update, flat, 4)[0]) < 1e-12


def test_equal_calls_give_equal_bits():
    F, h0, *_ = closure(torch.float32)
    first = advance(F, h0)
    assert all(torch.equal(first, advance(F, h0)) for _ in range(3))


@pytest.mark.usefixtures("traced")
def test_products_inside_a_backward_pass():
    F, _, _, h0 = tanh_problem(size=6)
    update, flat = updates(F, h0)
    jacobian = Jacobian(update, flat)

    class Reroute(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            return h.clone()

        @staticmethod
        def backward(ctx, b):
            return CompiledJacobian(jacobian, CHUNK).add_terms(torch.zeros_like(b), b, STEPS)[0]

    h = flat.clone().requires_grad_()
    Reroute.apply(h).sum().backward()
    ones = torch.ones_like(flat)
    assert relative(h.grad, eager_series(jacobian.dense(), ones, STEPS)[0]) < 1e-12


@pytest.mark.parametrize("steps", [0, -1])
def test_at_least_one_step(steps):
    update, flat = updates(*closure(torch.float64)[:2])
    with pytest.raises(ValueError, match="at least 1"):
        CompiledUpdate(update).advance(flat, steps)
    with pytest.raises(ValueError, match="at least 1"):
        CompiledJacobian(Jacobian(update, flat)).add_terms(flat, flat, steps)


@pytest.mark.usefixtures("traced")
def test_under_autocast_graphs_compute_as_f_does():
    """Torch traces F without the casts that autocast makes of it: graphs would be of another precision than the eager steps."""
    layer = nn.Linear(16, 16)
    x = torch.randn(4, 16)

    def state_and_gradient(compile, enabled=True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            solution = steady_state(
                lambda h: torch.tanh(0.5 * layer(h) + x),
                torch.zeros(4, 16),
                forward=Picard(max_steps=20, rtol=0),
                gradient=Implicit(Neumann(steps=20)),
                compile=compile,
            )
        return solution.value.detach(), torch.autograd.grad(solution.value.square().sum(), layer.weight)[0]

    for compiled, eager, single in zip(*(state_and_gradient(*way) for way in ((True,), (False,), (False, False))), strict=True):
        assert relative(compiled, eager) < 1e-6
        assert relative(eager, single) > 1e-4
