"""Where F cannot be compiled its steps are eager, with a word why; where F is wrong, the error is F's own."""

import contextlib

import pytest
import torch
from torch import nn

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
