"""Models with a fixed number of steps, exported, saved, loaded and run: the same numbers."""

import io

import pytest
import torch
from torch import nn

import steadygrad as sg

COUNTED = sg.Picard(max_steps=12, rtol=0)


class Cell(nn.Module):
    """tanh(A x + B h)."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 5), nn.Linear(5, 5)

    def forward(self, x, h):
        return torch.tanh(self.a(x) if h is None else self.a(x) + self.b(h))


class Model(nn.Module):
    """An equilibrium and a read-out."""

    def __init__(self, cell, **options):
        super().__init__()
        self.layer, self.out = sg.Equilibrium(cell, **options), nn.Linear(5, 2)

    def forward(self, x):
        state = self.layer(x)
        return self.out(state[0] if isinstance(state, tuple) else state)


def loaded(model, x, **options):
    """A model after export, saving and loading."""
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (x,), **options), file)
    file.seek(0)
    return torch.export.load(file).module()


@pytest.mark.parametrize("cell", [Cell, lambda: nn.GRUCell(3, 5), lambda: nn.LSTMCell(3, 5)], ids=["own", "gru", "lstm"])
@pytest.mark.parametrize("options", [{}, {"batch_dims": 1}, {"gradient": "bptt"}], ids=str)
def test_the_same_numbers(cell, options):
    torch.manual_seed(0)
    model = Model(cell(), forward=COUNTED, **options).eval()
    x = torch.randn(4, 3)
    assert torch.equal(loaded(model, x)(x), model(x))
    assert model.layer.solution is not None
    assert model.layer.solution.steps == 12


def test_damping_and_a_batch_of_any_size():
    model = Model(Cell(), forward=sg.Picard(max_steps=12, rtol=0, damping=0.2)).eval()
    size = torch.export.Dim("size", min=2)
    found = loaded(model, torch.randn(4, 3), dynamic_shapes={"x": {0: size}})
    x = torch.randn(9, 3)
    assert torch.equal(found(x), model(x))


def test_steady_state_by_itself():
    class Plain(nn.Module):
        def forward(self, x):
            return sg.steady_state(lambda h, x: torch.tanh(0.5 * h + x), torch.zeros(4), x, forward=COUNTED).value

    x = torch.randn(4)
    assert torch.equal(loaded(Plain(), x)(x), Plain()(x))


def test_exporting_leaves_the_layer_as_it_was():
    model = Model(Cell(), forward=COUNTED).eval()
    torch.export.export(model, (torch.randn(2, 3),))
    assert model.layer.solution is None


@pytest.mark.parametrize("forward", [sg.Picard(), sg.Anderson(), sg.Anderson(max_steps=5, rtol=0)], ids=repr)
def test_what_decides_by_numbers_is_refused(forward):
    with pytest.raises(sg.SteadyStateError, match=r"Picard\(max_steps=T, rtol=0\)"):
        torch.export.export(Model(Cell(), forward=forward).eval(), (torch.randn(2, 3),))


@pytest.mark.parametrize("options", [{"iterates": [3]}, {"warm": sg.steady_state(lambda h: 0.5 * h + 1, torch.zeros(4))}], ids=["iterates", "warm"])
def test_what_has_no_place_in_the_graph_is_refused(options):
    class Plain(nn.Module):
        def forward(self, x):
            return sg.steady_state(lambda h: torch.tanh(0.5 * h + x), torch.zeros(4), forward=COUNTED, **options).value

    with pytest.raises(sg.SteadyStateError, match="torch.export records the steps from h0"):
        torch.export.export(Plain(), (torch.randn(4),))
