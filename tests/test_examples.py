"""The examples run."""

import importlib.util
import sys
from pathlib import Path

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
    demo = load("demo")
    for method in demo.METHODS:
        row = demo.train(method, steps=2)
        assert row["method"] == method
