"""The code of docs/hyper.md runs as it stands, given what its reader brings along."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from steadygrad import hyper

PAGE = Path(__file__).parents[1] / "docs" / "hyper.md"
TUNING, PARTS, LOSSES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def own_seed():
    torch.manual_seed(0)


def test_tuning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    model = nn.Linear(4, 3)
    here = {
        "model": model,
        "loader": DataLoader(TensorDataset(x, y), batch_size=10),
        "validation_loss": lambda model: nn.functional.cross_entropy(model(x), y),
    }
    exec(TUNING.replace("steps=500, meta_steps=30", "steps=5, meta_steps=2, progress=False"), here)
    assert here["tuning"].hyper["decay"].shape == (2,)
    assert here["validation_loss"](model).item() == pytest.approx(here["tuning"].loss)
    assert (tmp_path / "tuning.pt").exists()


def test_an_objective_in_parts():
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    here = {"torch": torch, "validation_batches": [(x[:10], y[:10]), (x[10:], y[10:])]}
    exec(PARTS, here)
    step = hyper.SGD(nn.Linear(4, 3), lambda model, batch, hyper: nn.functional.cross_entropy(model(x), y))
    found = hyper.hypergradient(step, {"decay": 0.1}, here["objective"], batches=[None], steps=3)
    step.load(found.state)
    assert found.loss == pytest.approx(nn.functional.cross_entropy(step.model(x), y).item())


def test_losses_by_hand_are_those_of_torch():
    x, y, weight = torch.randn(20, 4), torch.randint(3, (20,)), torch.rand(3) + 0.5
    here = {"torch": torch, "model": nn.Linear(4, 3), "x": x, "y": y, "hyper": {"weight": weight, "smoothing": 0.1}}
    exec(LOSSES, here)
    for name, options in {"weighted": {"weight": weight}, "smoothed": {"label_smoothing": 0.1}}.items():
        expected = nn.functional.cross_entropy(here["model"](x), y, **options)
        torch.testing.assert_close(here[name], expected)
