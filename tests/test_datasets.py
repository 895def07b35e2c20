"""The embedded data are what the sources say, and a damaged file is refused."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from steadygrad.paper import datasets
from steadygrad.paper.datasets import embedded

ROOT = Path(__file__).parents[1]
RAW = ROOT.parent / "shared" / "data"
FOLDER = ROOT / "src" / "steadygrad" / "paper" / "datasets"


@pytest.fixture(scope="module")
def cora():
    return datasets.cora()


@pytest.fixture(scope="module")
def pubmed():
    return datasets.pubmed()


def test_cora(cora):
    assert cora.features.shape == (2708, 1433)
    assert cora.features.dtype == torch.float32
    assert set(cora.features.unique().tolist()) == {0.0, 1.0}
    assert cora.features.sum(1).min() >= 1
    assert cora.classes == 7
    assert dict(zip(cora.class_names, cora.labels.bincount().tolist(), strict=True)) == {
        "Case Based": 298,
        "Genetic Algorithms": 418,
        "Neural Networks": 818,
        "Probabilistic Methods": 426,
        "Reinforcement Learning": 217,
        "Rule Learning": 180,
        "Theory": 351,
    }
    assert datasets.citations("cora").shape == (2, 5429)
    assert cora.edge_index.shape == (2, 10556)


def test_pubmed(pubmed):
    assert pubmed.features.shape == (19717, 500)
    assert pubmed.features.dtype == torch.float32
    assert pubmed.features.count_nonzero() == 988_031
    assert pubmed.labels.bincount().tolist() == [4103, 7739, 7875]
    assert pubmed.classes == 3
    links = datasets.citations("pubmed")
    assert links.shape == (2, 44_338)
    both = torch.cat([links, links.flip(0)], 1)
    assert both.shape == (2, 88_676)
    assert (both[0] == both[1]).sum() == 6
    assert both.unique(dim=1).shape[1] == 88_651
    assert pubmed.edge_index.shape == (2, 88_648)


def test_mnist():
    digits = datasets.mnist()
    assert digits.images.shape == (10_000, 28, 28)
    assert digits.images.dtype == torch.uint8
    assert digits.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert digits.labels.bincount().tolist() == [1001, 1127, 991, 1032, 980, 863, 1014, 1070, 944, 978]
    assert (digits.images.min(), digits.images.max()) == (0, 255)
    border = torch.ones(28, 28, dtype=torch.bool)
    border[2:26, 2:26] = False
    assert (
        digits.images[:, border].float().mean() < 1 < digits.images[:, ~border].float().mean()
    )  # upright rows, not a shifted buffer


@pytest.mark.parametrize("name", ["cora", "pubmed"])
def test_linked_papers_share_their_topic_more_often_than_not(name, request):
    """Rows, labels and links belong together: a wrong order of the test rows would show here."""
    graph = request.getfixturevalue(name)
    source, target = graph.edge_index
    assert (graph.labels[source] == graph.labels[target]).double().mean() > 0.8
    if name == "pubmed":  # the thousand rows that test.index reorders
        moved = source >= 18_717
        assert (graph.labels[source] == graph.labels[target])[moved].double().mean() > 0.75
    cosine = torch.nn.functional.normalize(graph.features)
    linked = (cosine[source[:5000]] * cosine[target[:5000]]).sum(1).mean()
    assert linked > 1.5 * (cosine[source[:5000]] * cosine[target[:5000].flip(0)]).sum(1).mean()


@pytest.mark.parametrize("name", ["cora", "pubmed"])
def test_edges_go_both_ways_once(name, request):
    edges = request.getfixturevalue(name).edge_index
    assert edges.unique(dim=1).equal(edges)
    assert edges.flip(0).unique(dim=1).equal(edges)
    assert (edges[0] != edges[1]).all()


@pytest.mark.parametrize("name", sorted(embedded.SHA256))
def test_repacking_gives_the_same_bytes(name):
    if not RAW.exists():
        pytest.skip(f"the raw files are not at {RAW}; only the packed ones are shipped")
    spec = importlib.util.spec_from_file_location("pack_datasets", ROOT / "tools" / "pack_datasets.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    content = tool.pack(tool.PACKERS[name](RAW))
    assert hashlib.sha256(content).hexdigest() == embedded.SHA256[name]
    assert content == (FOLDER / f"{name}.npz").read_bytes()


def test_sizes():
    sizes = {path.stem: path.stat().st_size for path in FOLDER.glob("*.npz")}
    assert sizes.keys() == embedded.SHA256.keys()
    assert sizes["cora"] < 200_000
    assert sizes["pubmed"] < 4_700_000
    assert sizes["mnist"] < 2_100_000


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package folder of our own in place of the installed one."""
    monkeypatch.setattr(embedded.resources, "files", lambda package: tmp_path)
    return tmp_path


def test_a_changed_byte_is_refused(folder):
    content = bytearray((FOLDER / "cora.npz").read_bytes())
    content[5000] ^= 1
    (folder / "cora.npz").write_bytes(content)
    with pytest.raises(datasets.CorruptDataError, match=r"not the tested file.*install steadygrad again"):
        datasets.cora()


def test_a_missing_file_is_said(folder):
    with pytest.raises(datasets.CorruptDataError, match=r"mnist\.npz is missing; install steadygrad again"):
        datasets.mnist()


def test_pickles_are_not_loaded(folder, monkeypatch):
    np.savez(folder / "mnist.npz", images=np.array([{}], dtype=object), labels=np.zeros(1))
    monkeypatch.setitem(embedded.SHA256, "mnist", hashlib.sha256((folder / "mnist.npz").read_bytes()).hexdigest())
    with pytest.raises(ValueError, match="allow_pickle=False"):
        datasets.mnist()


def test_the_packer_runs_no_foreign_pickle(tmp_path):
    spec = importlib.util.spec_from_file_location("pack_datasets", ROOT / "tools" / "pack_datasets.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    (tmp_path / "evil").write_bytes(b"cposix\nsystem\n(S'true'\ntR.")
    with pytest.raises(Exception, match=r"asks for posix\.system"):
        tool.unpickle(tmp_path / "evil")


def test_unknown_citations():
    with pytest.raises(ValueError, match="choose 'cora' or 'pubmed'"):
        datasets.citations("mnist")


GOOD = {
    "name": "own",
    "features": torch.eye(3),
    "labels": torch.tensor([0, 1, 0]),
    "edge_index": torch.tensor([[0, 1], [1, 2]]),
    "class_names": ("a", "b"),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": torch.eye(3, dtype=torch.int64)}, "features must be a float tensor"),
        ({"features": torch.ones(3)}, r"features must be.*shape \(3,\)"),
        ({"labels": torch.tensor([0, 1])}, r"labels must be int64 of shape \(3,\), one a node"),
        ({"labels": torch.tensor([0.0, 1.0, 0.0])}, "labels must be int64"),
        ({"labels": torch.tensor([0, 2, 0])}, "labels must lie between 0 and 1.*got 0 to 2"),
        ({"edge_index": torch.tensor([[0, 1, 2]])}, r"edge_index must be int64 of shape \(2, edges\)"),
        ({"edge_index": torch.tensor([[0], [3]])}, "edge_index must lie between 0 and 2.*got 0 to 3"),
        ({"edge_index": torch.tensor([[0], [-1]])}, "edge_index must lie between 0 and 2.*got -1 to 0"),
    ],
)
def test_an_own_graph_that_does_not_fit_is_refused(change, message):
    assert datasets.Graph(**GOOD).nodes == 3
    with pytest.raises(ValueError, match=message):
        datasets.Graph(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 28, 28), torch.zeros(2, dtype=torch.int64), "images must be uint8"),
        (torch.zeros(2, 784, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), r"shape \(count, height, width\)"),
        (torch.zeros(2, 28, 28, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64), "one an image"),
    ],
)
def test_own_images_that_do_not_fit_are_refused(images, labels, message):
    with pytest.raises(ValueError, match=message):
        datasets.Images("own", images, labels)


def test_a_graph_without_edges_is_a_graph():
    empty = torch.empty(2, 0, dtype=torch.int64)
    assert datasets.undirected(empty).shape == (2, 0)
    assert datasets.Graph(**{**GOOD, "edge_index": empty}).nodes == 3
