"""The examples run."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

import steadygrad as sg

EXAMPLES = Path(__file__).parents[1] / "examples"


NEW = {
    "digit_classifier": [],
    "error_bars": [],
    "gene_network": [],
    "lightning_training": ["lightning"],
    "lstm_gru_steady_state": [],
    "pagerank": [],
    "transformer_equilibrium": [],
    "value_iteration": [],
}
"""Examples with main(small) and draw(found, path), and the packages that they need beside ours."""


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_energy_model_learns():
    losses = load("energy_model").fit(steps=25)
    assert losses[-1] < 0.7 * losses[0]


def test_demo_trains_with_every_method():
    demo = load("compare_methods")
    for method in demo.METHODS:
        row = demo.train(method, steps=2)
        assert row["method"] == method


def test_why_wrong_breaks_and_repairs():
    example = load("why_wrong")
    torch.manual_seed(0)
    network = example.Network(inputs=8, hidden=32, gain=2.5).double()
    x, target = torch.randn(4, 8, dtype=torch.float64), torch.randn(4, dtype=torch.float64)

    def diagnosis():
        return sg.diagnose(network.update, network.state(x, "bptt").detach(), x, batch_dims=1)

    assert not diagnosis().trustworthy
    assert min(example.gradient_errors(network, x, target).values()) > 0.5
    example.repair(network, x)
    assert diagnosis().trustworthy
    errors = example.gradient_errors(network, x, target)
    assert errors["auto"] < 1e-5
    assert errors["Neumann-RBP, K = 20"] < 1e-2


@pytest.mark.parametrize("name", sorted(NEW))
def test_runs_small_and_draws(name, tmp_path):
    example = load(name)
    for needed in NEW[name]:
        pytest.importorskip(needed)
    found = example.main(small=True)
    example.draw(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_lightning_is_asked_for_in_words(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lightning", None)
    assert load("lightning_training").main(small=True) is None
    assert "pip install" in capsys.readouterr().out


def test_error_bars_are_those_of_differences():
    assert load("error_bars").main(small=True).difference < 1e-6


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_is_short_and_on_the_page_with_its_picture(path):
    """Its picture is made by `python examples/<name>.py --picture docs/pictures/examples/<name>.png`."""
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    assert len(path.read_text().splitlines()) < 133  # 130 or so; tune_weight_decay.py has 132
    assert f"examples/{path.name}" in page
    for picture in re.findall(r"\((pictures/examples/[^)]*)\)", page):
        assert (EXAMPLES.parent / "docs" / picture).exists()
    if path.stem in NEW:
        assert f"pictures/examples/{path.stem}.png" in page
