"""Where F cannot be compiled its steps are eager, with a word why; where F is wrong, the error is F's own."""

import contextlib

import pytest
import torch
from torch import nn

import steadygrad as sg
from compiling import CHUNK, STEPS, advance, builds, closure, eager_steps, updates
from steadygrad import SteadyStateError, SteadyStateWarning
from steadygrad.update.compiled import CompiledUpdate

pytestmark = pytest.mark.usefixtures("forgotten")


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


class Rounded(torch.autograd.Function):
    """Straight through: the derivative of rounding is taken to be that of the identity."""

    @staticmethod
    def forward(ctx, h):
        return torch.round(8 * h) / 8

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def rounding(h):
    return Rounded.apply(h)


def scaling(h):
    with torch.no_grad():
        size = 1 + h.square().mean()
    return h / size


def hooked(h):
    if h.requires_grad:
        h = 1 * h
        h.register_hook(lambda gradient: 0.5 * gradient)
    return h


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("inside", [rounding, scaling, hooked], ids=lambda f: f.__name__)
def test_derivatives_that_are_not_in_a_graph_are_taken_eagerly_with_a_word(inside):
    """Torch traces F without gradients: products of the graph would be those of another F, and nobody would know."""
    W = (0.5 * torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]).requires_grad_()
    x = torch.randn(3, 6, dtype=torch.float64)

    def gradient(compile, W=W):
        solution = sg.steady_state(
            lambda h: torch.tanh(inside(h) @ W + x),
            torch.zeros(3, 6, dtype=torch.float64),
            forward=sg.Picard(max_steps=20, rtol=0),
            gradient=sg.Implicit(sg.Neumann(steps=20)),
            compile=compile,
        )
        return torch.autograd.grad(solution.value.sum(), W)[0], solution.adjoint.products

    expected, products = gradient(False)
    gradient(True, torch.zeros_like(W, requires_grad=True))  # as a layer may begin: where J is zero, nothing is seen
    with pytest.warns(SteadyStateWarning, match=r"the products with J of .* run eagerly .*differs from what autograd gives"):
        found, spent = gradient(True)
    torch.testing.assert_close(found, expected)
    assert spent == products
    torch.testing.assert_close(gradient(True)[0], expected)  # warnings are errors here: no second one
