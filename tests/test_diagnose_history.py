"""The forms of a diagnosis, and the live check while training."""

import json
import math
import warnings

import pytest
import torch

import steadygrad as sg
from diagnoses import F64, Cell
from problems import tanh_problem


def test_table_and_dict():
    F, W, x, h0 = tanh_problem()
    diagnosis = sg.diagnose(F, sg.steady_state(F, h0).value, parameters={"W": W})
    text = str(diagnosis)
    for expected in ("ρ(J)", "σ_min(I − J)", "Verdict:", "Advice:", "∂F/∂(W)", "products with J"):
        assert expected in text
    assert max(map(len, text.splitlines())) <= 96
    logged = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert logged["spectral_radius"] == diagnosis.spectral_radius
    assert logged["findings"] == ["sound"]


def test_plot():
    pytest.importorskip("matplotlib")
    F, W, x, h0 = tanh_problem()
    h = sg.steady_state(F, h0).value
    for update, state in [(F, h), (F, h0), (lambda h: torch.ones(3), torch.ones(3)), (lambda h: h * math.nan, torch.ones(3))]:
        figure = sg.diagnose(update, state).plot()
        figure.canvas.draw()
        assert [axes.get_xlabel() for axes in figure.axes] == ["step", "real part", "k"]
    drawn = sg.diagnose(F, h).plot().axes[2].lines[0].get_ydata()
    assert len(drawn) > 5


def test_history():
    layer = sg.Equilibrium(Cell(0.3), diagnose_every=2)
    x = torch.zeros(3, 6, dtype=F64) + 0.1
    for _ in range(5):
        layer(x).sum().backward()
    assert [entry.call for entry in layer.history] == [1, 3, 5]
    for entry in layer.history:
        assert 0.2 < entry.spectral_radius < 0.3
        assert entry.adjoint_residual < 1e-9
        assert entry.relative_residual < 1e-4
    assert layer.history.to_dicts()[0]["call"] == 1
    assert not layer.history.warned
    layer.eval()
    layer(x)
    assert len(layer.history) == 3
    with pytest.raises(sg.SteadyStateError, match="diagnose_every=100"):
        sg.Equilibrium(Cell(0.3)).history  # noqa: B018
    with pytest.raises(ValueError, match="diagnose_every"):
        sg.Equilibrium(Cell(0.3), diagnose_every=-1)


def test_history_warns_once():
    layer = sg.Equilibrium(Cell(0.3), diagnose_every=1, forward=sg.Picard(rtol=0, max_steps=30))
    x = torch.zeros(1, 6, dtype=F64) + 1e-3
    layer(x)
    with torch.no_grad():
        layer.cell.W.mul_(5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer(x)
        layer(x)
    said = [str(w.message) for w in caught if "assumptions" in str(w.message)]
    assert len(said) == 1
    assert "forward call 2" in said[0]
    assert "ρ(J) = 1." in said[0]


def test_history_survives_copies():
    import copy
    import pickle

    layer = sg.Equilibrium(Cell(0.3), diagnose_every=1)
    layer(torch.ones(1, 6, dtype=F64)).sum().backward()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.history.entries == layer.history.entries


def test_history_plot():
    pytest.importorskip("matplotlib")
    layer = sg.Equilibrium(Cell(0.3), diagnose_every=1)
    for _ in range(3):
        layer(torch.ones(1, 6, dtype=F64)).sum().backward()
    figure = layer.history.plot()
    figure.canvas.draw()
    assert len(figure.axes[0].lines[0].get_ydata()) == 3
