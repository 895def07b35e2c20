"""derivatives=n: exact to order n, and beyond it an error."""

import pytest
import torch

import steadygrad as sg
from problems import relative, tanh_problem

TIGHT = sg.Picard(2000, 1e-14)
SOLVERS = [
    "auto",
    "cg-rbp",
    "lsqr",
    "gmres",
    "bicgstab",
    "dense",
    sg.Implicit(sg.Picard(2000, 1e-13)),
    sg.Implicit(sg.Neumann(max_steps=2000)),
]
LOSSES = {"linear": lambda v: v.sum(), "cubic": lambda v: (v**3).sum()}


def small():
    return tanh_problem(size=3, rows=2, gain=0.7)


def steady(W, x, derivatives, gradient="auto", forward=TIGHT):
    h0 = torch.zeros_like(x)
    return sg.steady_state(lambda h: torch.tanh(h @ W.T + x), h0, forward=forward, gradient=gradient, derivatives=derivatives)


def unrolled(W, x):
    h = torch.zeros_like(x)
    for _ in range(200):
        h = torch.tanh(h @ W.T + x)
    return h


@pytest.mark.parametrize("gradient", SOLVERS, ids=str)
def test_gradcheck_and_gradgradcheck(gradient):
    _, W, x, _ = small()
    assert torch.autograd.gradcheck(lambda W, x: steady(W, x, 2, gradient).value, (W, x), atol=1e-6)
    assert torch.autograd.gradgradcheck(lambda W, x: steady(W, x, 2, gradient).value, (W, x), atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_third_derivative_against_unrolling(loss):
    _, W, x, _ = small()
    torch.manual_seed(1)
    directions = [torch.randn_like(W) for _ in range(3)]

    def third(value):
        result = loss(value)
        for direction in directions:
            (grad,) = torch.autograd.grad(result, W, create_graph=True)
            result = (grad * direction).sum()
        return result

    ours, theirs = third(steady(W, x, 3).value), third(unrolled(W, x))
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_beyond_the_declared_order_raises(loss, order):
    _, W, x, _ = small()
    result = loss(steady(W, x, order).value)
    for _ in range(order):
        (grad,) = torch.autograd.grad(result, W, create_graph=True)
        result = grad.sum()
    with pytest.raises(sg.SteadyStateError, match=f"Declare derivatives={order + 1}"):
        torch.autograd.grad(result, W)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_backward_with_create_graph(loss):
    _, W, x, _ = small()
    loss(steady(W, x, 2).value).backward(create_graph=True)
    (second,) = torch.autograd.grad(W.grad.sum(), W, create_graph=True)
    first = torch.autograd.grad(loss(unrolled(W, x)), W, create_graph=True)[0]
    assert relative(second, torch.autograd.grad(first.sum(), W)[0]) < 1e-7
    with pytest.raises(sg.SteadyStateError, match="Declare derivatives=3"):
        torch.autograd.grad(second.sum(), W)
    W.grad = x.grad = None


@pytest.mark.parametrize("order", [1, 2, 3])
def test_first_order_costs_one_real_solve(order):
    _, W, x, _ = small()
    solution = steady(W, x, order, "gmres")
    jacobian = find_jacobian(solution.value.grad_fn)
    solution.value.sum().backward()
    assert jacobian.products == solution.adjoint.products
    assert solution.adjoint.converged


def find_jacobian(node):
    ahead = [node]
    while ahead:
        node = ahead.pop()
        if hasattr(node, "adjoint"):
            return node.adjoint.jacobian
        if hasattr(node, "system"):
            return node.system.adjoint.jacobian
        ahead.extend(n for n, _ in node.next_functions if n is not None)
    raise AssertionError("no attachment found")


@pytest.mark.parametrize("order", [1, 2, 3])
def test_value_is_the_state_bit_for_bit(order):
    _, W, x, _ = small()
    with torch.no_grad():
        plain = steady(W, x, 1).value
    assert torch.equal(steady(W, x, order).value, plain)


def test_hessian_vector_product_through_a_layer():
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(3, 4).double()
    x = torch.randn(2, 3, dtype=torch.float64)
    layer = sg.Equilibrium(cell, derivatives=2, forward=sg.Picard(2000, 1e-14))
    parameters = list(cell.parameters())
    v = [torch.randn_like(p) for p in parameters]

    def hvp(value):
        grads = torch.autograd.grad(value.square().sum(), parameters, create_graph=True)
        return torch.autograd.grad(sum((g * d).sum() for g, d in zip(grads, v, strict=True)), parameters)

    h = torch.zeros(2, 4, dtype=torch.float64)
    for _ in range(300):
        h = cell(x, h)
    for ours, theirs in zip(hvp(layer(x)), hvp(h), strict=True):
        assert relative(ours, theirs) < 1e-6


def test_nested_states_and_batches():
    a = torch.tensor([0.3, 0.6], dtype=torch.float64, requires_grad=True)
    value = sg.steady_state(
        lambda s, a: (a * s[0] * s[1].cos() + 1, a * s[0].sin()),
        (torch.zeros(2).double(), torch.zeros(2).double()),
        a,
        derivatives=2,
        batch_dims=1,
        forward=TIGHT,
    ).value

    def loop():
        h, c = torch.zeros(2).double(), torch.zeros(2).double()
        for _ in range(300):
            h, c = a * h * c.cos() + 1, a * h.sin()
        return h

    seconds = []
    for result in (value[0], loop()):
        (grad,) = torch.autograd.grad(result.sum(), a, create_graph=True)
        seconds.append(torch.autograd.grad(grad.sum(), a)[0])
    assert relative(*seconds) < 1e-7


def test_small_losses_keep_their_second_derivative():
    """Nothing legitimate is mistaken for the rest of a solve."""
    _, W, x, _ = small()
    seconds = []
    for value in (steady(W, x, 2).value, unrolled(W, x)):
        (grad,) = torch.autograd.grad(value.sum(), W, create_graph=True)
        seconds.append(torch.autograd.grad(1e-13 * grad.sum(), W)[0])
    assert relative(*seconds) < 1e-6


def test_bptt_takes_any_order():
    _, W, x, _ = small()
    assert torch.autograd.gradgradcheck(lambda x: steady(W, x, 2, "bptt", sg.Picard(60, 0)).value, (x,), atol=1e-5)
