"""The examples run."""

import importlib.util
import sys
from pathlib import Path

import torch

import steadygrad as sg

EXAMPLES = Path(__file__).parents[1] / "examples"


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
