import os

import pytest
import torch
from hypothesis import settings

from steadygrad.update import program

# The same examples on every machine; HYPOTHESIS_PROFILE=explore hunts for new ones.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False)
torch.set_num_threads(1)  # the problems are small, and threads that wait for a busy core cost more than they bring
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random state."""
    torch.manual_seed(0)


@pytest.fixture
def leaving_out_always_pays(monkeypatch):
    """Problems that have ended are left out however small they are, as larger ones would be."""
    monkeypatch.setattr("steadygrad.iteration.run.WORTH", 0)
    monkeypatch.setattr("steadygrad.iteration.run.REMADE", 0)


@pytest.fixture
def traced(monkeypatch):
    """Graphs that are traced and guarded as ever, but run by torch's own operations: for what does not concern inductor."""
    monkeypatch.setattr("steadygrad.update.capture.BACKEND", "eager")


@pytest.fixture
def forgotten():
    """No test finds the graphs of another."""
    program._programs.clear()
