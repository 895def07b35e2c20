"""The examples run."""

import importlib.util
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from matplotlib import pyplot

import steadygrad as sg

EXAMPLES = Path(__file__).parents[1] / "examples"


ELSEWHERE = {"sharded_graph"}
"""Run by torchrun in tests/test_data_parallel.py; what it costs is a table of docs/cluster.md, not a picture."""
NAMES = sorted(path.stem for path in EXAMPLES.glob("[a-z]*.py") if path.stem not in ELSEWHERE)
NEEDED = {"lightning_training": ["lightning"]}
"""The packages that an example needs beside ours."""
SMALLER = {"tune_weight_decay": {"GRID": [1e-3, 1e-2], "STEPS": 30, "META_STEPS": 3, "SHORT": 5, "TERMS": 3}}
"""Settings that take seconds where even the small run takes longer."""


RIGHT = {
    "compare_methods": lambda rows: len(rows) == 9 and all(row.loss < 0.8 for row in rows),
    "energy_model": lambda found: found.losses[-1] < 0.7 * found.losses[0],
    "error_bars": lambda fit: fit.difference < 1e-6,
    "why_wrong": lambda found: min(found.before.values()) > 0.5 and found.after["auto"] < 1e-5,
}
"""What must hold of what a small run finds."""


@pytest.fixture(autouse=True)
def figures_are_closed():
    """The examples end after their one figure; here pyplot would warn at the twentieth."""
    yield
    pyplot.close("all")


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


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


@pytest.mark.parametrize("name", NAMES)
def test_runs_small_and_draws(name, tmp_path, monkeypatch):
    example = load(name)
    for needed in NEEDED.get(name, []):
        pytest.importorskip(needed)
    for setting, value in SMALLER.get(name, {}).items():
        monkeypatch.setattr(example, setting, value)
    found = example.main(small=True)
    assert RIGHT.get(name, bool)(found)
    example.draw(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_own_graph_is_classified():
    assert load("own_graph").main().accuracy > 0.9


def test_own_graph_takes_what_torch_geometric_has(monkeypatch):
    """The library is not installed here: any Data that keeps its attributes stands in for it."""
    made = []

    class Data:
        def __init__(self, **parts):
            made.append(self)
            vars(self).update(parts)

    package, module = ModuleType("torch_geometric"), ModuleType("torch_geometric.data")
    module.Data = Data
    monkeypatch.setitem(sys.modules, "torch_geometric", package)
    monkeypatch.setitem(sys.modules, "torch_geometric.data", module)
    assert load("own_graph").main(small=True).club is made[0]


def test_the_command_line_draws_where_it_is_told(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", ["own_graph.py", "--small", "--picture", str(tmp_path / "club.png")])
    runpy.run_path(str(EXAMPLES / "own_graph.py"), run_name="__main__")
    assert (tmp_path / "club.png").exists()


def test_lightning_is_asked_for_in_words(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lightning", None)
    assert load("lightning_training").main(small=True) is None
    assert "pip install" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted({*NAMES, *ELSEWHERE}))
def test_is_short_and_on_the_page_with_its_picture(name):
    """Its picture is made by `python examples/<name>.py --picture docs/pictures/examples/<name>.png`."""
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 130
    assert f"examples/{name}.py" in page
    if name in ELSEWHERE:
        return
    assert f"](pictures/examples/{name}.png)" in page
    assert (EXAMPLES.parent / "docs" / "pictures" / "examples" / f"{name}.png").exists()
