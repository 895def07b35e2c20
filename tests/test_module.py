"""Equilibrium: torch cells as they are."""

import copy
import pickle

import pytest
import torch
from torch import nn

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


def test_solution_is_detached_copied_and_pickled():
    layer = sg.Equilibrium(nn.GRUCell(4, 8), forward=sg.Picard(max_steps=300))
    assert layer.solution is None
    layer(torch.randn(2, 4)).sum().backward()
    assert not layer.solution.value.requires_grad
    assert layer.solution.adjoint.converged
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.solution.adjoint == layer.solution.adjoint
        assert torch.equal(twin.solution.value, layer.solution.value)
    assert list(layer.state_dict()) == [f"cell.{name}" for name in nn.GRUCell(4, 8).state_dict()]


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
