"""What is saved, copied and loaded again."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import steadygrad as sg

METHODS = [
    sg.Picard(max_steps=7), sg.Anderson(), sg.Broyden(), sg.Newton(linear=sg.LSQR(rtol=1e-3)),
    sg.Implicit(sg.Neumann(steps=5)), sg.Implicit(sg.Picard(max_steps=100), initial="uniform", seed=3), sg.Implicit(sg.Auto()),
    *(sg.Implicit(solver) for solver in (sg.NormalCG(), sg.LSQR(), sg.GMRES(), sg.BiCGSTAB(), sg.CG(), sg.MINRES(), sg.Dense())),
    sg.BPTT(), sg.TBPTT(steps=3), sg.ARTBP("poisson", mean=5.0), sg.Phantom(steps=3),
]  # fmt: skip


def saved(thing):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_methods_load_under_weights_only(method):
    """As Lightning needs it to resume a run with save_hyperparameters()."""
    loaded = torch.load(saved({"forward": method, "width": 3}), weights_only=True)
    assert loaded == {"forward": method, "width": 3}
    assert repr(loaded["forward"]) == repr(method)


def test_classes_of_others_stay_unknown_to_the_loader():
    with pytest.raises(pickle.UnpicklingError, match=r"Unsupported global.*Mine"):
        torch.load(saved(Mine(max_steps=3)), weights_only=True)


class Mine(sg.Picard):
    pass


@pytest.fixture
def layer():
    layer = sg.Equilibrium(nn.GRUCell(4, 8), forward=sg.Picard(max_steps=300))
    layer(torch.randn(5000, 4)).sum().backward()
    return layer


def test_a_saved_layer_holds_no_batch(layer):
    assert len(saved(layer).getvalue()) < 20_000  # the batch alone takes 160,000
    assert len(pickle.dumps(layer)) < 20_000


@pytest.mark.parametrize(
    "twin_of",
    [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer)), lambda layer: torch.load(saved(layer), weights_only=False)],
)
def test_copies_work_and_start_without_a_solution(layer, twin_of):
    twin = twin_of(layer)
    assert twin.solution is None
    assert layer.solution is not None
    x = torch.randn(3, 4)
    assert torch.equal(twin(x), layer(x))
    assert twin.solution.converged
