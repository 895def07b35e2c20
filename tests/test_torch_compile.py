"""Solves inside code that the user compiles: one break of the graph each, and no recompilation over training steps."""

import contextlib
import subprocess
import sys

import pytest
import torch
from torch import nn

import steadygrad as sg

# The compiler itself asks every tensor that enters a graph for its .grad, and torch warns where that is no leaf.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


class Model(nn.Module):
    """An equilibrium between two layers."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Linear(3, 4), nn.Linear(5, 1)
        self.layer = sg.Equilibrium(nn.GRUCell(4, 5), gradient="neumann-rbp")

    def forward(self, x):
        return self.after(self.layer(self.before(x).relu())).sum()


def by_steady_state(x):
    y = 2 * x
    solution = sg.steady_state(lambda h: torch.tanh(0.3 * h + y), torch.zeros(4))
    return (3 * solution.value).sum()


def by_root(x):
    return (3 * sg.root(lambda h: h.exp() - 2 * x.exp(), torch.zeros(4)).value).sum()


def by_minimum(x):
    return (3 * sg.minimum(lambda h: (h - 2 * x).square().sum(), torch.zeros(4)).value).sum()


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("function", [by_steady_state, by_root, by_minimum])
def test_one_break_a_solve(function):
    found = torch._dynamo.explain(function)(torch.randn(4))
    assert found.graph_break_count == 1
    assert found.graph_count == 2


def test_one_break_a_layer():
    found = torch._dynamo.explain(Model())(torch.randn(2, 3))
    assert found.graph_break_count == 1


@pytest.mark.parametrize("gradient", ["auto", "neumann-rbp", "bptt"])
def test_training_compiles_once_and_agrees(gradient):
    counter = torch._dynamo.testing.CompileCounter()
    model = Model()
    model.layer.gradient = sg.api.resolve_gradient(gradient)
    compiled = torch.compile(model, backend=counter)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    frames = []
    for _ in range(4):
        x = torch.randn(2, 3)
        optimiser.zero_grad()
        compiled(x).backward()
        found = [p.grad.clone() for p in model.parameters()]
        optimiser.zero_grad()
        model(x).backward()
        torch.testing.assert_close(found, [p.grad for p in model.parameters()])
        optimiser.step()
        frames.append(counter.frame_count)
    assert frames == [2] * 4  # before the solve, and after it


def test_the_compiler_is_back_after_the_solve():
    """The code after a solve is compiled again, also after one that failed."""

    def failing(x):
        y = x + 1
        with contextlib.suppress(sg.SteadyStateError):
            sg.steady_state(lambda h: 2 * h + y, torch.zeros(2), on_failure="raise")
        return inner(y)

    def inner(y):
        return y.sin() + 1

    counter = torch._dynamo.testing.CompileCounter()
    found = torch.compile(failing, backend=counter)(torch.ones(2))
    torch.testing.assert_close(found, torch.full((2,), 2.0).sin() + 1)
    assert counter.frame_count > 0


def test_importing_the_library_imports_no_compiler():
    code = "import sys, steadygrad; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
