"""The docs say what is so: their code runs, their layers are those of the import test, every public name has its example."""

import operator
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import steadygrad as sg
from test_imports import LAYERS

DOCS = Path(__file__).parents[1] / "docs"
OTHERWISE = {"hyper.md": "tests/test_hyper_docs.py"}
"""Pages whose code runs in tests of their own, with what its reader brings along."""
NOT_ON_PYPI = {"hypergrad"}
"""Peers whose block is from their documentation: a package of that name is not them."""


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def peers(page):
    """Blocks that are written for another library, ```python title="name"."""
    return re.findall(r'^```python title="(\w+)"\n(.*?)^```', page.read_text(), re.DOTALL | re.MULTILINE)


def name_of(page):
    return str(page.relative_to(DOCS))


PAGES = [page for page in sorted(DOCS.rglob("*.md")) if blocks(page) and name_of(page) not in OTHERWISE]


def a_network():
    """h ← tanh(W h + x) that contracts, as `update`, its solution and its parameters."""
    model = nn.Linear(6, 6)
    with torch.no_grad():
        model.weight.mul_(0.3)
    x = torch.randn(2, 6)
    update = lambda h, x: torch.tanh(model(h) + x)  # noqa: E731
    return {"model": model, "update": update, "args": (x,), "solution": sg.steady_state(update, torch.zeros(2, 6), x)}


def pictures():
    images = torch.zeros(2, 12, 12)
    images[0, :, 3:5] = 1
    images[1, 6:9] = 1
    return images


def own_graph():
    masks = [torch.arange(6) % 3 == part for part in range(3)]
    path = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    graph = {"features": torch.eye(6), "labels": torch.tensor([0, 0, 0, 1, 1, 1]), "edge_index": path}

    class Data:
        x, y, edge_index = graph["features"], graph["labels"], path
        train_mask, val_mask, test_mask = masks

    return {**graph, **dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True)), "data": Data()}


def brought(name):
    """What the reader of a page brings along, for pages that say `update` or `images` and mean theirs."""
    match name:
        case "why-wrong.md":
            cell = nn.GRUCell(4, 4)
            return {**a_network(), "sg": sg, "torch": torch, "cell": cell, "log": dict, "x": torch.zeros(2, 4)}
        case "experiments/hopfield.md":
            return {"images": pictures(), "damaged": pictures()}
        case "experiments/citation.md":
            return own_graph()
    return {}


CHANGES = {
    # What is left out on a page, and settings that take seconds instead of minutes.
    "why-wrong.md": [("*args", "*args, quick=True"), ("\n...\n", "\nlayer(x).sum().backward()\n")],
    "experiments/citation.md": [
        ("train_mask=..., val_mask=..., test_mask=...", "train_mask=train_mask, val_mask=val_mask, test_mask=test_mask"),
        ("alpha=0.1", "alpha=0.1, hidden=4, epochs=2"),
    ],
}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, at its first jvp
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler's own
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    here = brought(name_of(page))
    for number, code in enumerate(blocks(page), start=1):
        for old, new in CHANGES.get(name_of(page), []):
            code = code.replace(old, new)
        exec(compile(code, f"{name_of(page)}, block {number}", "exec"), here)


README = DOCS.parent / "README.md"


def test_code_of_the_readme_runs():
    found = blocks(README)
    assert len(found) == 1
    here = {}
    exec(found[0], here)
    assert here["W"].grad is not None


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\(([^)#]*)\)", README.read_text())
    assert len(links) > 10
    assert [link for link in links if not (README.parent / link).exists()] == []


def test_readme_is_read_in_two_minutes():
    """Without the tables that tools fill and the matrix that is folded away: 230 words a minute, 60 seconds for the code."""
    prose = re.sub(r"<!-- (compared|claims) -->.*?<!-- /\1 -->|```.*?```", "", README.read_text(), flags=re.DOTALL)
    assert len(re.findall(r"\w+", re.sub(r"\([^)]*\)", "", prose))) < 2 * 230 + 100


@pytest.mark.parametrize("peer, code", peers(DOCS / "migrating.md"), ids=lambda text: text if text.isidentifier() else "")
def test_peers_give_the_same_gradient(peer, code):
    if peer in NOT_ON_PYPI:
        pytest.skip(f"{peer}: written from its documentation")
    pytest.importorskip(peer)
    here = {}
    for ours in blocks(DOCS / "migrating.md")[:2]:
        exec(ours, here)
    exec(code, here)
    torch.testing.assert_close(torch.tensor(here["theirs"].tolist()), here["ours"], rtol=1e-3, atol=1e-6)


def test_changes_are_still_called_for():
    for name, changes in CHANGES.items():
        text = "".join(blocks(DOCS / name))
        assert all(old in text for old, _ in changes), f"{name} has changed: mend CHANGES"


def test_architecture_lists_the_layers_of_the_import_test():
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", (DOCS / "architecture.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(len(LAYERS)))
    assert [set(re.findall(r"`([\w.]+)`", parts)) for _, parts in rows] == LAYERS


def test_picture_of_the_architecture_names_parts_that_exist():
    drawn = re.findall(r'class="name">([^<]*)<', (DOCS / "pictures" / "architecture.svg").read_text())
    parts = {part for names in drawn for part in names.split(", ")}
    assert parts <= {name.removeprefix("paper.") for name in set().union(*LAYERS)}
    assert {"fixedpoint", "gradient", "linear", "iteration", "experiments", "engine", "records", "report"} <= parts


def reference():
    """What follows each name in the API reference, up to the next one."""
    sections = {}
    for page in sorted((DOCS / "api").glob("*.md")):
        found = re.split(r"^::: steadygrad\.([\w.]+)$", page.read_text(), flags=re.MULTILINE)
        sections.update(zip(found[1::2], found[2::2], strict=True))
    return sections


def public_names():
    """Every public name, with those of the public modules one level down."""
    for name in sg.__all__:
        thing = getattr(sg, name)
        if isinstance(thing, ModuleType):
            yield from (f"{name}.{below}" for below in thing.__all__)
        else:
            yield name


@pytest.mark.parametrize("name", list(public_names()))
def test_reference_has_an_example_at_every_public_name(name):
    sections = reference()
    assert name in sections, f"docs/api has no '::: steadygrad.{name}'"
    documented = operator.attrgetter(name)(sg).__doc__ or ""
    assert ">>>" in documented or "```python" in sections[name], (
        f"{name} has no example, neither in its docstring nor on its page"
    )


def test_no_page_loads_anything_from_elsewhere():
    pages = [*DOCS.rglob("*.md"), *DOCS.rglob("*.svg"), *DOCS.rglob("*.js")]
    loaded = re.compile(r"""!\[[^\]]*\]\(https?:|<(?:script|img|iframe|link)[^>]*(?:src|href)=["']?https?:|import\(|fetch\(""")
    assert [name_of(page) for page in pages if loaded.search(page.read_text())] == []


def test_every_page_is_in_the_navigation():
    text = (DOCS.parent / "mkdocs.yml").read_text()
    assert [name_of(page) for page in DOCS.rglob("*.md") if f": {name_of(page)}" not in text] == []


def test_examples_of_docstrings_become_code():
    pytest.importorskip("griffe")
    fenced = runpy.run_path(str(DOCS.parent / "tools" / "docstring_examples.py"))["fenced"]
    text = "It adds.\n\n>>> 1 + 1\n2\n>>> 2 + 2\n4\n\nAlways.\n\n>>> 3"
    assert fenced(text) == "It adds.\n\n```pycon\n>>> 1 + 1\n2\n>>> 2 + 2\n4\n```\n\nAlways.\n\n```pycon\n>>> 3\n```"
    assert fenced("No example.\n\n> A quotation.") == "No example.\n\n> A quotation."
