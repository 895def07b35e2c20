"""Equilibrium: torch cells as they are."""

import inspect

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import steadygrad as sg
from problems import relative

LONG = sg.Picard(max_steps=500, rtol=1e-12)


@pytest.mark.parametrize("gradient", ["auto", "cg-rbp", "neumann-rbp"])
@pytest.mark.parametrize("make", [nn.GRUCell, nn.RNNCell, nn.LSTMCell])
def test_torch_cells(make, gradient):
    torch.manual_seed(0)
    cell = make(4, 8).double()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    method = sg.Implicit(sg.Neumann(steps=400)) if gradient == "neumann-rbp" else gradient
    layer = sg.Equilibrium(cell, forward=LONG, gradient=method)

    def loss(value):
        return sum(part.square().sum() for part in (value if isinstance(value, tuple) else (value,)))

    value = layer(x)
    loss(value).backward()
    assert layer.solution.converged
    assert layer.solution.adjoint.residual < 1e-9
    ours = [x.grad.clone(), *(p.grad.clone() for p in cell.parameters())]
    h = None
    for _ in range(layer.solution.steps):
        h = cell(x, h)
    theirs = torch.autograd.grad(loss(h), [x, *cell.parameters()])
    for a, b in zip(ours, theirs, strict=True):
        assert relative(a, b) < 1e-6


def test_lstm_value_has_the_structure_of_the_cell():
    h, c = sg.Equilibrium(nn.LSTMCell(4, 8), forward=sg.Picard(max_steps=300))(torch.zeros(2, 4))
    assert h.shape == c.shape == (2, 8)


def test_start():
    cell = nn.GRUCell(4, 8)
    x = torch.randn(2, 4)
    starts = []

    def initial(x):
        starts.append(x.shape)
        return torch.ones(2, 8)

    layer = sg.Equilibrium(cell, forward=sg.Picard(max_steps=1, rtol=0), initial=initial)
    assert torch.allclose(layer(x), cell(x, torch.ones(2, 8)))
    assert torch.allclose(layer(x, torch.zeros(2, 8)), cell(x, None))
    assert starts == [(2, 4)]


def test_solution_is_detached():
    layer = sg.Equilibrium(nn.GRUCell(4, 8), forward=sg.Picard(max_steps=300))
    assert layer.solution is None
    layer(torch.randn(2, 4)).sum().backward()
    assert not layer.solution.value.requires_grad
    assert layer.solution.adjoint.converged
    assert list(layer.state_dict()) == [f"cell.{name}" for name in nn.GRUCell(4, 8).state_dict()]


class TestCheckpoint:
    """Around the layer, with something after it whose saved tensors make torch run the layer to its end once more."""

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_the_certificate_is_found(self, reentrant):
        layer = sg.Equilibrium(nn.GRUCell(4, 8), forward=sg.Picard(max_steps=500), diagnose_every=1)
        x = torch.randn(2, 4, requires_grad=True)
        runs = []
        layer.cell.register_forward_hook(lambda *_: runs.append(torch._C._current_graph_task_id() != -1))
        for _ in range(2):
            checkpoint(lambda x: layer(x).square(), x, use_reentrant=reentrant).sum().backward()
            assert layer.solution.adjoint.converged
        assert any(runs)
        assert not all(runs)

    def test_a_run_again_is_not_another_call(self):
        layer = sg.Equilibrium(nn.GRUCell(4, 8), forward=sg.Picard(max_steps=500), diagnose_every=1)
        x = torch.randn(2, 4, requires_grad=True)
        for _ in range(3):
            checkpoint(lambda x: layer(x).square(), x, use_reentrant=False).sum().backward()
        assert [entry.call for entry in layer.history] == [1, 2, 3]
        assert all(entry.adjoint_residual is not None for entry in layer.history)


def test_a_layer_without_history_has_no_such_attribute():
    layer = sg.Equilibrium(nn.GRUCell(4, 8))
    assert not hasattr(layer, "history")
    assert "history" not in dict(inspect.getmembers(layer))
    with pytest.raises(sg.SteadyStateError, match="diagnose_every=100"):
        layer.history  # noqa: B018
    with pytest.raises(AttributeError, match="'Equilibrium' object has no attribute 'nonsense'"):
        layer.nonsense  # noqa: B018
    assert hasattr(sg.Equilibrium(nn.GRUCell(4, 8), diagnose_every=5), "history")


def test_representation_pastes_back():
    layer = sg.Equilibrium(nn.GRUCell(4, 8), gradient="cg-rbp", forward=sg.Picard(max_steps=7))
    assert "forward=Picard(max_steps=7), gradient=Implicit(NormalCG())" in repr(layer)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: sg.Equilibrium(3), TypeError, "cell must be callable"),
        (lambda: sg.Equilibrium(nn.GRUCell(4, 8), gradient="rpb"), ValueError, "Did you mean 'rbp'"),
        (lambda: sg.Equilibrium(nn.GRUCell(4, 8), on_failure="no"), ValueError, "on_failure must be"),
    ],
)
def test_bad_settings(make, error, match):
    with pytest.raises(error, match=match):
        make()
