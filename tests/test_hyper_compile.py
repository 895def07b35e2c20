"""compile=True: the same training in graphs of torch.compile, and a word where that cannot be had."""

from functools import partial

import pytest
import torch
from torch import nn

import steadygrad as sg
from steadygrad import hyper
from steadygrad.hyper.compiled import Compiled
from trainings import data, in_double, on, small_net, squared


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    """In double, traced as torch.compile traces, but run by torch's own kernels: generating code takes half a minute a step."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch.manual_seed(0)
    with in_double():
        yield


def dropping_net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1))


@pytest.mark.parametrize("make", [hyper.SGD, hyper.Adam])
@pytest.mark.parametrize("net", [small_net, dropping_net])
def test_the_hypergradient_is_the_same(make, net):
    batches, (xv, yv) = [data() for _ in range(3)], data()
    model = net()

    def run(**options):
        step = make(model, squared, **options)
        values = {"decay": step.per_tensor(0.1)}
        return hyper.hypergradient(step, values, on(xv, yv), batches=batches, steps=12, method=sg.TBPTT(steps=3), seed=1)

    found, expected = run(compile=True), run()
    assert found.loss == pytest.approx(expected.loss, rel=1e-12)
    torch.testing.assert_close(found.gradients, expected.gradients, rtol=1e-9, atol=1e-15)


def test_other_batches_and_values_need_no_other_graph():
    step = hyper.SGD(small_net(), squared, compile=True)
    torch._dynamo.utils.counters.clear()
    state = step.initial()
    with torch.no_grad():
        for decay in torch.linspace(0.1, 0.5, 12):
            state = step(state, {"decay": decay}, data())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_what_cannot_be_traced_runs_as_it_is_and_says_so():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    batch, plain, fast = data(), hyper.SGD(net, squared), hyper.SGD(net, squared, compile=True)

    def train(step):
        state = step.initial()
        with torch.no_grad():
            for _ in range(4):
                state = step(state, {}, batch)
        return state

    with pytest.warns(sg.SteadyStateWarning, match=r"compile=True: .* cannot be one graph") as caught:
        found = train(fast)
    assert len(caught) == 1
    torch.testing.assert_close(found, train(plain), rtol=0, atol=0)


def test_twelve_steps_each_have_their_own_graph():
    torch._dynamo.utils.counters.clear()
    for many in range(12):
        step = Compiled(lambda x, many=many: x + many)
        assert [step(torch.ones(2)).tolist() for _ in range(3)] == [[1.0 + many] * 2] * 3
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 12


def test_a_fault_of_the_step_is_its_own():
    step = hyper.SGD(small_net(), lambda model, batch, hyper: model(batch), compile=True)
    for _ in range(2):
        with torch.no_grad(), pytest.raises(TypeError, match="must return one number"):
            step(step.initial(), {}, torch.ones(5, 3))
    with pytest.raises(TypeError, match="compile must be True or False; got 'yes'"):
        hyper.SGD(small_net(), squared, compile="yes")
