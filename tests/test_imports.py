"""Imports point one way, and the core needs torch, numpy and the standard library only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "steadygrad"
# A module may import from the layers before its own, and from its own package.
LAYERS = [
    {"calls", "compiler", "failure", "files", "method", "peak_memory", "sparse", "supported"},
    {"solution", "state"},
    {"iteration", "update"},
    {"fixedpoint"},
    {"linear"},
    {"gradient", "roots"},
    {"api", "diagnose", "penalty"},
    {"equations", "hyper", "module"},
    {"__init__"},
    {"models"},
    {"paper.__init__", "paper.datasets", "paper.records"},
    {"paper.experiments", "paper.report"},
    {"paper.engine", "paper.playground"},
    {"paper.cli"},
    {"__main__"},
]
# What parts may need besides torch and the standard library: the core judges in numpy's numbers; `diagnose` only for its plots, `hyper` for its bar.
EXTRAS = {
    "calls": {"numpy"},
    "iteration": {"numpy"},
    "linear": {"numpy"},
    "gradient": {"numpy"},
    "diagnose": {"matplotlib"},
    "hyper": {"rich"},
    "paper.datasets": {"numpy"},
    "paper.records": {"numpy"},
    "paper.experiments": {"numpy", "sklearn"},
    "paper.report": {"numpy", "matplotlib", "jinja2", "markupsafe", "sklearn"},
    "paper.playground": {"numpy", "matplotlib", "gradio", "fastapi", "starlette", "uvicorn"},
    "paper.cli": {"rich", "tyro"},
}
ORDER = {name: depth for depth, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(ROOT.rglob("*.py"))


def part(path: Path) -> str:
    """The part of the package that a file belongs to: its first name, its first two below `paper`."""
    return _part(path.relative_to(ROOT).with_suffix("").parts)


def _part(names) -> str:
    return ".".join(names[: 2 if names[0] == "paper" else 1]) if names else "__init__"


def imported(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "steadygrad.paper":
                yield from (f"steadygrad.paper.{alias.name}" for alias in node.names)
            else:
                yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_direction(path):
    here = part(path)
    assert here in ORDER, f"{here} is in no layer: add it to the list"
    for name in imported(path):
        top, *rest = name.split(".")
        if top == "steadygrad":
            there = _part(rest)
            assert here == there or ORDER[there] < ORDER[here], f"{here} must not import {there}"
        else:
            allowed = {"torch", *EXTRAS.get(here, set())}
            assert top in allowed or top in sys.stdlib_module_names, f"{here} must not import {top}"


def test_core_loads_no_extras_and_experiments_are_there_when_asked_for():
    code = """
import sys, steadygrad as sg
extras = {"numpy", "sklearn", "matplotlib", "rich", "tyro", "jinja2"}
loaded = {name for name in sys.modules if name.startswith("steadygrad.")}
assert not {"steadygrad.paper", "steadygrad.models"} & loaded, loaded
assert not extras - {"numpy"} & set(sys.modules), "torch itself brings numpy, nobody the others"
print(sg.models.AssociativeMemory.__name__, sg.datasets.mnist.__name__)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["AssociativeMemory", "mnist"]


def test_experiments_without_their_extras_say_what_to_install():
    code = """
import sys
sys.modules["sklearn"] = None
import steadygrad as sg
try:
    sg.experiments
except ModuleNotFoundError as error:
    print(error)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "steadygrad.paper.experiments needs sklearn" in printed
    assert "pip install 'steadygrad[experiments]'" in printed
