"""Graphs of torch.compile are built once and not for ever, keep nothing alive, and leave torch as it was."""

import gc
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from compiling import CHUNK, STEPS, advance, builds, closure, eager_series, eager_steps, updates
from problems import relative
from steadygrad import SteadyStateWarning
from steadygrad.update import onednn, program
from steadygrad.update.capture import divided_at
from steadygrad.update.compiled import CompiledJacobian, CompiledUpdate
from steadygrad.update.jacobian import Jacobian

pytestmark = pytest.mark.usefixtures("forgotten")


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


def test_a_graph_is_divided_into_what_some_inputs_tell_alone_and_the_rest():
    def products(x, v):
        slope, again = 1 - torch.tanh(x).square(), 1 - torch.tanh(x).square()
        return v * slope, (v * again).sum()

    inputs = (torch.randn(3), torch.randn(3))
    whole = make_fx(products)(*inputs)
    first, then = divided_at(whole, 1)
    kept = first(inputs[0])
    assert len(kept) == 1  # though it is worked out twice
    assert not any("tanh" in str(node.target) for node in then.graph.nodes)
    for v in (inputs[1], torch.ones(3)):
        torch.testing.assert_close(then(inputs[0], v, *kept), whole(inputs[0], v))


@pytest.mark.usefixtures("traced")
def test_graphs_of_few_products_linearise_once():
    update, flat = updates(*closure(torch.float64)[:2])
    eager = Jacobian(update, flat)
    jacobian = CompiledJacobian(eager, CHUNK, often=True)
    z, v, steps = torch.zeros_like(flat), torch.ones_like(flat), CHUNK[-1]
    for _ in range(3):
        z, v, _ = jacobian.add_terms(z, v, steps)
    assert relative(z, eager_series(eager.dense(), torch.ones_like(flat), 3 * steps)[0]) < 1e-12
    assert len(jacobian._kept) == len(update.captured.captured.divided) == 1
    assert not update.captured.captured.graphs


def test_what_the_first_part_tells_alone_may_be_an_output():
    whole = make_fx(lambda x, v: (v * x, torch.exp(x)))(torch.randn(3), torch.randn(3))
    first, then = divided_at(whole, 1)
    x, v = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(then(x, v, *first(x)), whole(x, v))


def large_products(h):
    """The first three and no others are worth while: the fourth is small, the last in float64."""
    W = torch.linspace(-1, 1, 256 * 256).sin().view(256, 256)
    found = [h @ W.T, h @ W, torch.addmm(W[0], h, torch.cat([W, W])[::2]), h[:2] @ W]
    return [*found, (h.double() @ W.double()).float()]


def test_large_products_in_single_precision_are_given_to_onednn():
    h = torch.randn(64, 256)
    module = make_fx(large_products, tracing_mode="real")(h)
    assert onednn.with_its_products(module)
    assert sum("steadygrad" in str(node.target) for node in module.graph.nodes) == 3
    for found, expected in zip(module(h), large_products(h), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    assert not onednn.with_its_products(make_fx(lambda v: v @ v)(torch.eye(8)))


def test_graphs_with_onednns_products_give_what_f_gives(monkeypatch):
    """As on processors that are not Intel's, whatever this one is."""
    products, with_products = [], onednn.with_its_products
    monkeypatch.setattr(onednn, "better", lambda: True)
    monkeypatch.setattr(onednn, "with_its_products", lambda module: products.append(with_products(module)) or products[-1])
    layer = nn.Linear(256, 256)
    h0 = torch.zeros(64, 256)
    update, flat = updates(lambda h: torch.tanh(0.5 * layer(h) + 1), h0)
    h = CompiledUpdate(update, CHUNK).advance(flat, STEPS)[0]
    assert relative(h, eager_steps(update, flat, STEPS)[0]) < 1e-5
    jacobian = Jacobian(update, h)
    z, v = torch.zeros_like(h), torch.randn_like(h)
    found = CompiledJacobian(jacobian, CHUNK, often=True).add_terms(z, v, 4)
    assert relative(found[0], jacobian.add_terms(z, v, 4, 1)[0]) < 1e-5
    assert any(products)
