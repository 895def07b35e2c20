"""Exact gradients of the steps that were taken: equal to plain BPTT's, with no more states kept than promised."""

import math
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

import steadygrad as sg
from problems import FAMILIES, Affine, tanh_problem
from steadygrad.gradient.instead import evaluations
from steadygrad.gradient.schedule import Plan, logarithm, rooms_for, square_root
from steadygrad.gradient.trail import Trail
from steadygrad.peak_memory import peak_memory

DOUBLE = torch.float64
METHODS = [
    sg.BPTT(checkpoints=1),
    sg.BPTT(checkpoints=2),
    sg.BPTT(checkpoints=5),
    sg.BPTT(checkpoints=5, graphs=1),
    sg.BPTT(checkpoints=500),
    sg.BPTT(memory="sqrt"),
    sg.BPTT(memory="log"),
]
COUNTED, STOPPING = sg.Picard(max_steps=25, rtol=0), sg.Picard(max_steps=400, rtol=1e-8)


# The schedule: against dynamic programming, and counted.


def followed(plan, total):
    """Evaluations without a graph, the most states kept, the most with those in graphs, the longest stretch."""
    trail = Trail(plan)
    for step in range(total):
        if trail.wants(step):
            trail.keep(step, step)
    found = {"first": max(step for step, _ in trail.kept), "again": 0, "alive": 0, "stretch": 0}
    order = [total]

    def advance(at, state, to):
        assert state == at < to
        found["again"] += to - at
        return to

    def back(at, state, end):
        assert state == at < end == order[-1]
        order.append(at)
        extra = 0 if trail.kept[-1][0] == at else 1  # a state at work that is not kept
        found["alive"] = max(found["alive"], len(trail.kept) + end - at - 1 + extra)
        found["stretch"] = max(found["stretch"], end - at)

    trail.reverse(total, advance, back)
    assert order[-1] == 0
    return {**found, "peak": trail.peak}


@cache
def fewest(length, states):
    """The fewest steps without a graph by which a run can be reversed, one graph at a time, by trying all."""
    if length <= 1:
        return 0
    if states == 1:
        return length * (length - 1) // 2
    return min(m + fewest(m, states) + fewest(length - m, states - 1) for m in range(1, length))


@pytest.mark.parametrize("states", range(1, 8))
def test_no_schedule_takes_fewer_steps(states):
    for length in range(1, 60):
        plan = Plan(states, graphs=1, total=length)
        found = followed(plan, length)
        assert found["first"] + found["again"] == fewest(length, states) == plan.steps_again(length)


def test_counts_of_the_binomial_schedule():
    plan = Plan(10, graphs=1)
    for r in range(6):
        assert plan.reach(10, r) == math.comb(10 + r, 10)
    assert plan.repeats(1000, 10) == 4
    assert plan.steps_again(1000) == 4 * 1000 - math.comb(14, 3)


@given(st.integers(1, 40), st.integers(1, 2000), st.sampled_from([None, 1, 3]), st.booleans())
def test_never_more_states_than_promised(states, total, graphs, known):
    if states < 4:
        total = total % 200 + 1
    plan = Plan(states, graphs, total if known else None)
    found = followed(plan, total)
    assert found["peak"] <= states
    assert found["alive"] <= states + 1
    assert found["stretch"] <= min(states, graphs or states)
    if known:
        assert found["first"] + found["again"] == plan.steps_again(total)


@given(st.integers(1, 5000))
def test_with_the_square_root_each_step_is_taken_once_more(total):
    known = followed(square_root(total), total)
    assert known["first"] + known["again"] <= total
    assert known["alive"] <= math.sqrt(2 * total) + 1
    grown = followed(square_root(None), total)
    assert grown["again"] == 0
    assert grown["alive"] <= 2.2 * math.sqrt(total) + 1


def test_rooms_and_logarithms():
    for total in range(1, 500):
        rooms = rooms_for(total)
        assert Plan(rooms).reach(rooms, 1) >= total
        assert rooms == 1 or Plan(rooms - 1).reach(rooms - 1, 1) < total
        assert logarithm(total, None).states == max(1, math.ceil(math.log2(total)))


def test_an_unknown_length_costs_at_most_a_third_more():
    for states in (2, 3, 4, 5, 8, 10, 20):
        for total in (47, 129, 255, 300, 513, 1000, 1999):
            if total <= 2 * states or (states == 2 and total > 600):
                continue
            known, online = (followed(Plan(states, total=t), total)["again"] for t in (total, None))
            assert 2 * total + online <= 1.34 * (2 * total + known)


# Problem families: what is differentiated, and with respect to what.


def affine(family):
    def make():
        F = Affine.of(family, 0.9)
        h0 = torch.randn(20, dtype=DOUBLE, requires_grad=True)
        return F, h0, (), [F.J, F.c, h0], 0

    return make


def of_tanh():
    F, W, x, h0 = tanh_problem()
    h0 = torch.randn_like(h0).requires_grad_()
    return F, h0, (), [W, x, h0], 0


def with_args_that_were_computed():
    """W and x are no leaves, and their own gradients are asked for too."""
    V, u = torch.randn(6, 6, dtype=DOUBLE, requires_grad=True), torch.randn(4, 6, dtype=DOUBLE, requires_grad=True)
    W, x = 0.1 * V.sin(), u.exp()
    return lambda h, x: torch.tanh(h @ W.T + x), torch.zeros(4, 6, dtype=DOUBLE), (x,), [V, u, W, x], 0


def batch_of_unlike_problems():
    W = (0.2 * torch.randn(5, 5, dtype=DOUBLE)).requires_grad_()
    x = torch.randn(4, 5, dtype=DOUBLE, requires_grad=True)
    rate = torch.tensor([0.1, 0.5, 0.8, 0.95], dtype=DOUBLE).unsqueeze(1).requires_grad_()
    h0 = torch.randn(4, 5, dtype=DOUBLE, requires_grad=True)
    return lambda h, x, rate: rate * torch.tanh(h @ W.T + h + x), h0, (x, rate), [W, x, rate, h0], 1


def nested():
    A, B = (0.3 * torch.randn(3, 4, dtype=DOUBLE) for _ in range(2))
    A, B = A.requires_grad_(), B.requires_grad_()
    h0 = {"a": torch.randn(2, 3, dtype=DOUBLE, requires_grad=True), "b": (torch.randn(2, 4, dtype=DOUBLE),)}

    def update(h):
        return {"a": torch.tanh(h["b"][0] @ A.T + 1), "b": (torch.tanh(h["a"] @ B - 0.5),)}

    return update, h0, (), [A, B, h0["a"]], 0


def lstm_cell():
    cell = nn.LSTMCell(3, 4).double()
    x = torch.randn(2, 3, dtype=DOUBLE, requires_grad=True)
    h0 = (torch.zeros(2, 4, dtype=DOUBLE), torch.zeros(2, 4, dtype=DOUBLE))
    return lambda h, x: cell(x, h), h0, (x,), [*cell.parameters(), x], 1


def dropout():
    net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.4), nn.Tanh()).double()
    return lambda h: 0.7 * net(h), torch.zeros(3, 6, dtype=DOUBLE), (), list(net.parameters()), 0


def half_unused():
    """F uses one of two outputs of an operation outside, and a parameter twice."""
    V = torch.randn(2, 5, dtype=DOUBLE, requires_grad=True)
    w = torch.rand(5, dtype=DOUBLE, requires_grad=True)
    a, b = V.unbind()
    return lambda h: torch.sin(w * h + b) * w.cos(), torch.zeros(5, dtype=DOUBLE), (), [V, w, b], 0


PROBLEMS = {
    **{f"affine, {family}": affine(family) for family in FAMILIES},
    "tanh": of_tanh,
    "computed args": with_args_that_were_computed,
    "batch": batch_of_unlike_problems,
    "nested": nested,
    "LSTM cell": lstm_cell,
    "dropout": dropout,
    "half unused": half_unused,
}


def solved(problem, gradient, forward, iterates=()):
    torch.manual_seed(1)
    F, h0, args, wanted, batch_dims = problem()
    solution = sg.steady_state(
        F, h0, *args, forward=forward, gradient=gradient, batch_dims=batch_dims, iterates=iterates, on_failure="ignore"
    )
    states = [solution.value, *solution.iterates.values()]
    leaves = [leaf for state in states for leaf in sg.api.leaves_of(state)]
    loss = sum((i + 1.5) * leaf.square().sum() + leaf.sin().sum() for i, leaf in enumerate(leaves))
    return solution, torch.autograd.grad(loss, wanted)


def check_equal(problem, gradient, forward, iterates=(), rtol=1e-11):
    plain, expected = solved(problem, sg.BPTT(), forward, iterates)
    solution, found = solved(problem, gradient, forward, iterates)
    assert solution.steps == plain.steps
    for a, b in zip(sg.api.leaves_of(solution.value), sg.api.leaves_of(plain.value), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(found, expected, strict=True):
        assert torch.linalg.vector_norm(a - b) <= rtol * torch.linalg.vector_norm(b)


@pytest.mark.parametrize("forward", [COUNTED, STOPPING, sg.Picard(max_steps=400, rtol=1e-6, damping=0.4)], ids=repr)
@pytest.mark.parametrize("gradient", METHODS, ids=repr)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_equals_plain_bptt(problem, gradient, forward):
    check_equal(problem, gradient, forward)


@pytest.mark.parametrize("problem", [of_tanh, batch_of_unlike_problems], ids=["one", "batch"])
@pytest.mark.parametrize("gradient", METHODS, ids=repr)
def test_states_on_the_way_have_their_gradient_too(gradient, problem):
    check_equal(problem, gradient, STOPPING, iterates=(1, 4, 30))


@pytest.mark.parametrize("states", [1, 2, 3, 7, 20, 100])
@pytest.mark.parametrize("total", [1, 2, 3, 10, 100, 2000])
def test_any_number_of_steps_with_any_number_of_states(total, states):
    if states == 1 and total > 200:
        pytest.skip("half of the square of the steps: two million evaluations")
    check_equal(of_tanh, sg.BPTT(checkpoints=states), sg.Picard(max_steps=total, rtol=0))


def test_the_default_precision_too():
    def single():
        F, W, x, h0 = tanh_problem(dtype=torch.float32)
        return F, h0, (), [W, x], 0

    check_equal(single, sg.BPTT(checkpoints=4), COUNTED, rtol=1e-5)


class Counting:
    """F = tanh(h Wᵀ + x), which counts its calls and, at each, how many of its earlier images are still alive."""

    def __init__(self, size=8):
        self.W = (0.9 * torch.linalg.qr(torch.randn(size, size, dtype=DOUBLE))[0]).requires_grad_()
        self.calls, self.most, self.images = 0, 0, []

    def __call__(self, h):
        self.calls += 1
        image = torch.tanh(h @ self.W.T + 0.3)
        self.images = [seen for seen in self.images if not seen.expired()]
        self.most = max(self.most, len(self.images))
        self.images.append(StorageWeakRef(image.untyped_storage()))
        return image


AT_WORK = 5
"""States that any solve holds besides: the last two of the iteration, what it would return, F for the graph."""


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("gradient", "promised"),
    [(sg.BPTT(checkpoints=n), lambda _, n=n: n) for n in (1, 3, 10, 40)]
    + [(sg.BPTT(checkpoints=10, graphs=1), lambda _: 10)]
    + [(sg.BPTT(memory="log"), lambda T: math.log2(T))]
    + [(sg.BPTT(memory="sqrt"), lambda T: 2.2 * math.sqrt(T))],
    ids=lambda given: repr(given) if isinstance(given, sg.BPTT) else "",
)
def test_no_more_states_are_alive_than_promised(gradient, promised, known):
    total = 30 if gradient.checkpoints == 1 else 300
    F = Counting()
    forward = sg.Picard(max_steps=total, rtol=0) if known else sg.Picard(max_steps=total, rtol=1e-15)
    solution = sg.steady_state(F, torch.zeros(2, 8, dtype=DOUBLE), forward=forward, gradient=gradient, on_failure="ignore")
    solution.value.sum().backward()
    assert 30 <= solution.steps <= total
    assert F.most <= promised(solution.steps if gradient.memory == "sqrt" else total) + AT_WORK


def test_evaluations_are_those_of_the_schedule():
    for gradient in (sg.BPTT(checkpoints=10), sg.BPTT(checkpoints=10, graphs=1), sg.BPTT(memory="sqrt")):
        F = Counting()
        forward = sg.Picard(max_steps=200, rtol=0)
        sg.steady_state(F, torch.zeros(2, 8, dtype=DOUBLE), forward=forward, gradient=gradient).value.sum().backward()
        plan = gradient.plan(200, known=True)
        first, for_the_graph = 200, 2
        again = plan.steps_again(200) - max(plan.stops())
        assert F.calls == first + for_the_graph + again + 200


def test_memory_is_a_tenth():
    W = (0.5 * torch.linalg.qr(torch.randn(128, 128))[0]).requires_grad_()

    def run(gradient):
        h0, forward = torch.zeros(16, 128), sg.Picard(max_steps=1000, rtol=0)
        sg.steady_state(lambda h: torch.tanh(h @ W.T + 1), h0, forward=forward, gradient=gradient).value.sum().backward()

    run("bptt")
    assert peak_memory(lambda: run(sg.BPTT(checkpoints=20))) < 0.1 * peak_memory(lambda: run(sg.BPTT()))


# How it lives with the rest of autograd.


def small(gradient=sg.BPTT(checkpoints=3), **options):
    F, W, x, h0 = tanh_problem(size=5, rows=2)
    return sg.steady_state(F, h0, forward=COUNTED, gradient=gradient, **options).value, W, x


def test_two_backward_passes_add_up():
    value, W, _ = small()
    value.sum().backward(retain_graph=True)
    once = W.grad.clone()
    value.sum().backward()
    torch.testing.assert_close(W.grad, 2 * once)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        value.sum().backward()


def test_hooks_and_other_uses_of_a_parameter():
    value, W, _ = small()
    seen = []
    W.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    (value.sum() + 3 * W.sum()).backward()
    other, V, _ = small(sg.BPTT())
    (other.sum() + 3 * V.sum()).backward()
    torch.testing.assert_close(W.grad, V.grad)
    assert len(seen) == 1


def test_a_loss_inside_and_outside_of_the_same_graph():
    """A tensor that F uses and the loss uses too gets both gradients."""

    def gradient(method):
        torch.manual_seed(0)
        V = torch.randn(4, 4, dtype=DOUBLE, requires_grad=True)
        W = 0.2 * V.tanh()
        h0 = torch.zeros(3, 4, dtype=DOUBLE)
        value = sg.steady_state(lambda h: torch.tanh(h @ W + 1), h0, forward=COUNTED, gradient=method).value
        return torch.autograd.grad((value @ W).square().sum() + W.sum(), V)[0]

    torch.testing.assert_close(gradient(sg.BPTT(memory="sqrt")), gradient(sg.BPTT()), rtol=1e-12, atol=0)


def test_where_nothing_needs_a_gradient_there_is_none():
    h0 = torch.ones(3)
    assert not sg.steady_state(torch.cos, h0, gradient=sg.BPTT(checkpoints=2)).value.requires_grad
    with torch.no_grad():
        assert not small()[0].requires_grad


def test_only_the_start_needs_one():
    h0 = torch.full((3,), 0.3, dtype=DOUBLE, requires_grad=True)
    forward = sg.Picard(max_steps=4, rtol=0)
    for method in (sg.BPTT(checkpoints=2), sg.BPTT()):
        value = sg.steady_state(torch.cos, h0, forward=forward, gradient=method).value
        (found,) = torch.autograd.grad(value.sum(), h0)
        at = [h0.detach()]
        for _ in range(3):
            at.append(at[-1].cos())
        torch.testing.assert_close(found, math.prod(-x.sin() for x in at))


def test_an_f_that_returns_what_it_closes_over():
    c = torch.randn(3, dtype=DOUBLE, requires_grad=True)
    value = sg.steady_state(lambda h: c, torch.zeros(3, dtype=DOUBLE), gradient=sg.BPTT(checkpoints=2)).value
    assert torch.equal(torch.autograd.grad(value.sum(), c)[0], torch.ones(3, dtype=DOUBLE))


def test_autocast_and_its_cache():
    net = nn.Linear(4, 4)

    def gradient(method):
        net.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            forward = sg.Picard(max_steps=6, rtol=0)
            value = sg.steady_state(lambda h: torch.tanh(0.5 * net(h) + 1), torch.zeros(2, 4), forward=forward, gradient=method)
        value.value.sum().backward()
        return net.weight.grad.clone()

    torch.testing.assert_close(gradient(sg.BPTT(checkpoints=2)), gradient(sg.BPTT()), rtol=2e-2, atol=2e-2)


def test_equilibrium_takes_it():
    layer = sg.Equilibrium(nn.GRUCell(3, 4), forward=COUNTED, gradient=sg.BPTT(checkpoints=4))
    layer(torch.randn(2, 3)).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in layer.parameters())


# What cannot be done is said.


def test_bad_input():
    with pytest.raises(ValueError, match="checkpoints must be at least 1; got 0"):
        sg.BPTT(checkpoints=0)
    with pytest.raises(TypeError, match="checkpoints must be a whole number"):
        sg.BPTT(checkpoints=2.5)
    with pytest.raises(ValueError, match='"sqrt", "log"'):
        sg.BPTT(memory="square")
    with pytest.raises(ValueError, match="not both"):
        sg.BPTT(checkpoints=3, memory="log")
    with pytest.raises(ValueError, match="give checkpoints too"):
        sg.BPTT(graphs=3)
    with pytest.raises(ValueError, match="first derivatives only"):
        small(derivatives=2)
    for forward in (sg.Anderson(), sg.Broyden(), sg.Newton()):
        with pytest.raises(TypeError, match="forward must be Picard"):
            sg.steady_state(torch.cos, torch.ones(2), forward=forward, gradient=sg.BPTT(checkpoints=3))


def test_a_second_derivative_is_refused():
    value, W, _ = small()
    (first,) = torch.autograd.grad(value.square().sum(), W, create_graph=True)
    with pytest.raises(sg.SteadyStateError, match="second derivative"):
        first.sum().backward()


def test_a_parameter_that_was_changed_since_is_refused():
    value, W, _ = small()
    with torch.no_grad():
        W.mul_(2)
    with pytest.raises(sg.SteadyStateError, match="changed in place"):
        value.sum().backward()


def test_an_input_that_was_overwritten_since_is_reported():
    W = (0.3 * torch.eye(3)).requires_grad_()
    buffer = torch.ones(3)
    solution = sg.steady_state(lambda h: torch.tanh(h @ W + buffer), torch.zeros(3), gradient=sg.BPTT(checkpoints=2))
    buffer.zero_()
    with pytest.warns(sg.SteadyStateWarning, match="led to another state"):
        solution.value.sum().backward()


def test_a_branch_that_only_some_steps_take_is_refused():
    a, b = torch.tensor(0.5, requires_grad=True), torch.tensor(0.7, requires_grad=True)
    solution = sg.steady_state(
        lambda h: a * h + 1 if h.item() > 1.2 else b * h + 1, torch.tensor(0.0), gradient=sg.BPTT(checkpoints=2)
    )
    with pytest.raises(sg.SteadyStateError, match="did not reach in the last step"):
        solution.value.backward()


def test_advice_names_the_exact_way_and_its_cost():
    W = torch.tensor(0.999, requires_grad=True)
    options = {"forward": sg.Picard(max_steps=200)}
    exact = r'these 200 steps.*BPTT\(memory="sqrt"\) keeps 20 states and evaluates F 400 times.*keeps 8 and evaluates it'
    with pytest.warns(sg.SteadyStateWarning, match=exact):
        sg.steady_state(lambda h: W * h + 1, torch.zeros(3), **options)
    for gradient in (sg.BPTT(), sg.BPTT(checkpoints=3)):
        with pytest.warns(sg.SteadyStateWarning) as caught:
            sg.steady_state(lambda h: W * h + 1, torch.zeros(3), gradient=gradient, **options)
        assert "evaluates F" not in str(caught[0].message)


def test_the_costs_that_advice_names_are_the_true_ones():
    for memory in ("sqrt", "log"):
        F = Counting()
        forward, method = sg.Picard(max_steps=150, rtol=0), sg.BPTT(memory=memory)
        sg.steady_state(F, torch.zeros(2, 8, dtype=DOUBLE), forward=forward, gradient=method).value.sum().backward()
        assert F.calls == evaluations(method.plan(150, known=True), 150) + 2


def test_the_code_of_the_docs_runs():
    page = Path(__file__).parents[1] / "docs" / "exact.md"
    here = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(block, here)
    assert here["W"].grad.any()
    assert here["found"].gradients["decay"].isfinite()
