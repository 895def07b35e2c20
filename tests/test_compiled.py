"""Steps and products in torch.compile graphs: equal to the eager ones, built once, and eager where F cannot be compiled."""

import contextlib
import gc
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from problems import relative, tanh_problem
from steadygrad import Implicit, Neumann, Picard, SteadyStateError, SteadyStateWarning, steady_state
from steadygrad.state import Layout, leaves_of
from steadygrad.update import Update, capture, program
from steadygrad.update.compiled import CompiledJacobian, CompiledUpdate
from steadygrad.update.jacobian import Jacobian

CHUNK = (2,)  # short graphs are built fast
STEPS = 5  # two graphs and an eager step


@pytest.fixture
def traced(monkeypatch):
    """Graphs that are traced and guarded as ever, but run by torch's own operations: for what does not concern inductor."""
    monkeypatch.setattr(capture, "BACKEND", "eager")


@pytest.fixture(autouse=True)
def forgotten():
    """No test finds the graphs of another."""
    program._programs.clear()


def updates(F, h0, *args, batch_dims=0):
    layout = Layout.of(h0, batch_dims)
    return Update(F, args, layout), layout.flatten(leaves_of(h0))


def eager_steps(update, h, steps, damping=0.0):
    with torch.no_grad():
        for _ in range(steps):
            before, h = h, (1 - damping) * update(h) + damping * h
    return h, before


def eager_series(J, v, steps):
    """Σ_{k<steps} (Jᵀ)ᵏ v and the next term, by dense algebra; J is (problems, size, size)."""
    total = torch.zeros_like(v)
    for _ in range(steps):
        total = total + v
        v = torch.einsum("bi,bij->bj", v, J)
    return total, v


def advance(F, h0, *args, steps=STEPS, damping=0.0):
    update, flat = updates(F, h0, *args)
    return CompiledUpdate(update, CHUNK).advance(flat, steps, damping)[0]


def builds():
    return [trace.builds for each in program._programs.values() for trace in each.traces.values()]


def closure(dtype):
    F, _, _, h0 = tanh_problem(size=6, dtype=dtype)
    return F, h0, (), 0


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
class TestGraphsAreBuiltOnce:
    def test_while_an_optimiser_changes_the_parameters_in_place(self):
        cell = nn.GRUCell(4, 6, dtype=torch.float64)
        optimiser = torch.optim.Adam(cell.parameters(), lr=0.1)
        h0 = torch.zeros(3, 6, dtype=torch.float64)
        seen = []
        for _ in range(4):
            x = torch.randn(3, 4, dtype=torch.float64)  # with a new closure over a new input at each step
            update, flat = updates(lambda h, x=x: cell(x, h), h0)
            h = CompiledUpdate(update, CHUNK).advance(flat, STEPS)[0]
            assert relative(h, eager_steps(update, flat, STEPS)[0]) < 1e-12
            jacobian = Jacobian(update, h)
            z, *_ = CompiledJacobian(jacobian, CHUNK).add_terms(torch.zeros_like(h), torch.ones_like(h), 4)
            assert relative(z, eager_series(jacobian.dense(), torch.ones_like(z), 4)[0]) < 1e-12
            optimiser.zero_grad()
            torch.autograd.backward(jacobian.outputs, [z.view(3, 6)])
            optimiser.step()
            seen.append(h)
        assert not torch.allclose(seen[0], seen[-1])
        assert builds() == [1]

    def test_for_another_model_of_the_same_structure(self):
        for _ in range(6):
            cell = nn.GRUCell(4, 6)
            advance(lambda h, cell=cell: cell(torch.ones(3, 4), h), torch.zeros(3, 6))
        assert builds() == [1]

    def test_for_cotangents_of_any_stride(self):
        update, flat = updates(*closure(torch.float64)[:2])
        jacobian = CompiledJacobian(Jacobian(update, flat), CHUNK)
        ones = torch.ones_like(flat)
        a = jacobian.add_terms(torch.zeros_like(flat), ones, 2)[0]
        assert torch.equal(
            a, jacobian.add_terms(torch.zeros_like(flat), torch.ones(1, 1, dtype=flat.dtype).expand_as(flat), 2)[0]
        )
        assert builds() == [1]

    def test_for_each_of_twelve_updates_behind_one_piece_of_code(self):
        def of(cell):
            return lambda h: 0.5 * cell(h)

        cells = [nn.Sequential(*[nn.Linear(4, 4) for _ in range(depth)]) for depth in range(1, 13)]
        for _ in range(2):
            for cell in cells:
                update, flat = updates(of(cell), torch.ones(2, 4))
                h = CompiledUpdate(update, CHUNK).advance(flat, 2)[0]
                assert relative(h, eager_steps(update, flat, 2)[0]) < 1e-6
        assert builds() == [1] * 12


def branching(h):
    return 0.5 * h if h.sum() > 0 else 0.5 * h + 1


def printing(h):
    print("F")
    return 0.5 * h + 1


def sparse(h):
    return torch.sparse.mm(SPARSE, h) + 1


SPARSE = 0.5 * torch.eye(3).to_sparse()


@pytest.mark.parametrize("F", [branching, printing, sparse], ids=lambda f: f.__name__)
def test_an_update_that_cannot_be_traced_is_named_once_and_runs_eagerly(F):
    h0 = torch.zeros(3, 3)
    with pytest.warns(SteadyStateWarning, match=rf"the steps of {F.__name__} run eagerly .*F must be traceable"):
        h = advance(F, h0)
    update, flat = updates(F, h0)
    assert torch.equal(h, eager_steps(update, flat, STEPS)[0])
    assert torch.equal(h, advance(F, h0))  # warnings are errors here: no second one


@pytest.mark.usefixtures("traced")
def test_random_draws_are_refused_until_there_are_none():
    layer = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5))
    h0 = torch.ones(3, 6)
    update, flat = updates(layer, h0)
    with pytest.warns(SteadyStateWarning, match="draws random numbers"):
        h = CompiledUpdate(update, CHUNK).advance(flat, STEPS)[0]
    assert torch.equal(h, eager_steps(update, flat, STEPS)[0])
    assert sum(builds()) == 0
    layer.eval()
    advance(layer, h0)
    assert builds() == [1]


@pytest.mark.usefixtures("traced")
def test_random_draws_are_refused_after_a_graph_without_them():
    layer = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5))
    h0 = torch.ones(3, 6)
    layer.eval()
    advance(layer, h0)
    layer.train()
    for first in (True, False):
        update, flat = updates(layer, h0)
        with pytest.warns(SteadyStateWarning, match="draws random numbers") if first else contextlib.nullcontext():
            h = CompiledUpdate(update, CHUNK).advance(flat, STEPS)[0]
        assert torch.equal(h, eager_steps(update, flat, STEPS)[0])


@pytest.mark.usefixtures("traced")
def test_what_an_update_returns_is_checked_when_its_graph_is_built():
    for wrong, message in [(lambda h: h[:1], "shape"), (lambda h: h.add_(1), "in place"), (lambda h: (h, h), "structure tensor")]:
        with pytest.raises((TypeError, ValueError, SteadyStateError), match=message):
            advance(wrong, torch.ones(3, 6))


@pytest.mark.usefixtures("traced")
def test_a_number_that_changes_with_every_call_ends_the_building():
    h0 = torch.ones(2, 3)
    found = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for i in range(program.MAX_BUILDS + 4):
            found.append(advance(lambda h, i=i: h / (2 + i), h0, steps=2))
    assert torch.allclose(torch.stack(found)[:, 0, 0], torch.tensor([(2.0 + i) ** -2 for i in range(len(found))]))
    assert ["Make it a tensor" in str(warning.message) for warning in seen] == [True]
    assert builds() == [program.MAX_BUILDS + 1]


@pytest.mark.usefixtures("traced")
def test_ever_new_shapes_stay_eager_after_some():
    def halved(h):
        return 0.5 * h

    for rows in range(1, program.MAX_LAYOUTS + 1):
        advance(halved, torch.ones(rows, 3))
    with pytest.warns(SteadyStateWarning, match="different shapes"):
        advance(halved, torch.ones(50, 3))
    advance(halved, torch.ones(51, 3))
    advance(halved, torch.ones(1, 3))  # known ones still have their graphs
    assert builds() == [1] * program.MAX_LAYOUTS


def test_without_a_compiler_for_c_the_steps_are_eager():
    F, h0, *_ = closure(torch.float64)
    from torch._inductor import config

    with (
        config.patch({"cpp.cxx": ("no-such-compiler",), "force_disable_caches": True}),
        pytest.warns(SteadyStateWarning, match=r"g\+\+"),
    ):
        h = advance(F, h0)
    update, flat = updates(F, h0)
    assert torch.equal(h, eager_steps(update, flat, STEPS)[0])


@pytest.mark.usefixtures("traced")
def test_an_error_of_the_update_itself_is_raised_as_it_is():
    broken = []

    def failing(h):
        if broken:
            raise KeyError("mine")
        return 0.5 * h

    update, flat = updates(failing, torch.ones(2, 3))
    step = CompiledUpdate(update, CHUNK)
    step(flat)
    broken.append(True)
    with pytest.warns(SteadyStateWarning), pytest.raises(KeyError, match="mine"):
        step.advance(flat, STEPS)


def test_torch_is_left_as_it_was():
    W = torch.randn(3, 3, requires_grad=True)

    def checkpointed(h):
        return checkpoint(lambda h: 0.1 * torch.tanh(h @ W), h, use_reentrant=False)

    advance(checkpointed, torch.ones(2, 3))  # torch._dynamo is loaded now
    config = torch._dynamo.config.get_config_copy()
    update, flat = updates(checkpointed, torch.ones(2, 3))
    eager = Jacobian(update, flat)
    with pytest.warns(SteadyStateWarning, match="run eagerly"):  # torch.func.vjp and checkpoint do not compile together
        z, *_ = CompiledJacobian(eager, CHUNK).add_terms(torch.zeros_like(flat), torch.ones_like(flat), 2)
    assert relative(z, eager_series(eager.dense(), torch.ones_like(flat), 2)[0]) < 1e-6
    assert torch._dynamo.config.get_config_copy() == config
    assert torch._C._autograd._saved_tensors_hooks_is_enabled()
    assert torch._C._functorch.peek_interpreter_stack() is None
    assert torch.is_grad_enabled()


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


@pytest.mark.usefixtures("traced")
def test_graphs_keep_no_tensor_of_the_user_alive():
    def made():
        W = torch.randn(3, 3)
        advance(lambda h: 0.1 * h @ W, torch.ones(2, 3))
        return weakref.ref(W)

    W = made()
    gc.collect()
    assert builds() == [1]
    assert W() is None


@pytest.mark.parametrize("steps", [0, -1])
def test_at_least_one_step(steps):
    update, flat = updates(*closure(torch.float64)[:2])
    with pytest.raises(ValueError, match="at least 1"):
        CompiledUpdate(update).advance(flat, steps)
    with pytest.raises(ValueError, match="at least 1"):
        CompiledJacobian(Jacobian(update, flat)).add_terms(flat, flat, steps)
