"""Messages on a graph against dense algebra, and the graphs that users bring: what is handled, what is refused and how."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from graphs import EDGES, NODES, diffusion, graph, gru, with_edges
from steadygrad.fixedpoint import Picard
from steadygrad.paper.experiments.citation import data, neighbours, normalised, of_data, own, split, train
from steadygrad.paper.experiments.citation.presets import CORRECTED
from steadygrad.paper.experiments.citation.training import answer

TRIAL = replace(CORRECTED["planted"], epochs=4)


def test_sparse_matrix_refuses_a_state_that_does_not_fit():
    with pytest.raises(ValueError, match=r"shape \(6, 6\) cannot be multiplied with \(5, 2\)"):
        _ = neighbours(EDGES, NODES) @ torch.ones(5, 2)


def test_neighbours_are_summed_along_the_edges_as_they_are():
    h = torch.randn(NODES, 2)
    expected = torch.zeros(NODES, 2)
    for source, target in EDGES.T.tolist():
        expected[target] += h[source]
    torch.testing.assert_close(neighbours(EDGES, NODES) @ h, expected)


def test_normalised_adjacency_is_symmetric_of_norm_one_with_one_loop_a_node():
    A = normalised(EDGES, NODES).dense()
    links = torch.zeros(NODES, NODES)
    for i, j in ((0, 1), (1, 2), (0, 2), (2, 3)):
        links[i, j] = links[j, i] = 1
    links += torch.eye(NODES)
    scale = links.sum(dim=1).rsqrt()
    torch.testing.assert_close(A, scale[:, None] * links * scale)
    assert float(torch.linalg.eigvalsh(A.double()).abs().max()) == pytest.approx(1, abs=1e-6)
    assert A[5, 5] == 1


def test_loops_and_duplicates_change_nothing_and_isolated_nodes_keep_their_own():
    clean, nodes = with_edges(torch.tensor([[0, 1, 2, 3], [1, 2, 0, 2]]))
    messy, _ = with_edges(EDGES)
    assert torch.equal(messy.edge_index, clean.edge_index)
    network = diffusion(messy)
    with torch.no_grad():
        scores, alone = answer(network, Picard(max_steps=2000, rtol=1e-13)).scores, network.encode()
    torch.testing.assert_close(scores[4:], alone[4:])
    assert not torch.allclose(scores[:4], alone[:4])


def test_nodes_without_features_take_from_their_neighbours():
    x = torch.eye(NODES)
    x[3] = 0
    assert not data.scaled(x)[3].any()
    g, nodes = with_edges(EDGES, x)
    done = train(TRIAL, g, nodes)
    assert done.scores.shape == (NODES, 2)
    assert done.scores.isfinite().all()
    network = diffusion(g)
    nn.init.normal_(network.encode.second_bias)
    with torch.no_grad():
        assert not torch.allclose(answer(network, Picard(max_steps=500)).scores[3], network.encode()[3])


def test_isolated_nodes_of_the_published_network_hear_nobody():
    g, _ = with_edges(EDGES)
    network = gru(g)
    h = torch.randn(NODES, 4, dtype=torch.float64)
    alone = network.cell(torch.zeros(2, 4, dtype=torch.float64), h[4:])
    torch.testing.assert_close(network.dynamics().update(h)[4:], alone)


@pytest.mark.parametrize("method", ["auto", "bptt", "gcn", "baseline"])
def test_graph_without_edges_is_learnt_node_by_node(method):
    g, nodes = with_edges(torch.empty(2, 0, dtype=torch.int64))
    done = train(replace(TRIAL, method=method), g, nodes)
    assert done.scores.isfinite().all()


LABELS, MASKS = torch.tensor([0, 1, 0]), torch.eye(3, dtype=torch.bool)
GOOD = {
    "edge_index": torch.tensor([[0, 1], [1, 2]]),
    "features": torch.eye(3),
    "labels": LABELS,
    "train_mask": MASKS[0],
    "val_mask": MASKS[1],
    "test_mask": MASKS[2],
}
NOBODY = torch.zeros(3, dtype=torch.bool)
REFUSED = {
    "empty train": ({"train_mask": NOBODY}, "the train split is empty; give every split one node"),
    "empty validation": ({"val_mask": NOBODY}, "the validation split is empty"),
    "empty test": ({"test_mask": NOBODY}, "the test split is empty"),
    "shared node": ({"val_mask": MASKS[0]}, "a node is in two splits"),
    "several splits": ({"test_mask": MASKS}, r"test_mask must be bool of shape \(3,\).*choose one: test_mask\[:, 0\]"),
    "numbers for masks": ({"train_mask": LABELS}, "train_mask must be bool"),
    "infinite features": ({"features": torch.eye(3) / 0}, "features hold inf or NaN"),
    "whole features": ({"features": torch.eye(3).long()}, "features must be a float tensor"),
    "edges of nobody": ({"edge_index": torch.tensor([[1, 2], [2, 3]])}, "edge_index must lie between 0 and 2"),
    "edges as rows": ({"edge_index": torch.zeros(5, 2, dtype=torch.int64)}, r"edge_index must be int64 of shape \(2, edges\)"),
    "unlabelled nodes": ({"labels": LABELS - 1}, "labels go down to -1; .*leave them out of the masks"),
}


def test_good_graph_is_taken():
    g, nodes = own(**GOOD)
    assert (g.nodes, g.classes, len(nodes.train)) == (3, 2, 1)


@pytest.mark.parametrize(
    "form", [torch.Tensor.half, torch.Tensor.double, torch.Tensor.to_sparse], ids=["half", "double", "sparse"]
)
def test_features_of_other_forms_become_dense_float32(form):
    g, _ = own(**{**GOOD, "features": form(torch.eye(3))})
    assert torch.equal(g.features, torch.eye(3))
    assert g.features.dtype == torch.float32


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_own_graph_is_refused_with_reasons(change, message):
    with pytest.raises(ValueError, match=message):
        own(**{**GOOD, **change})


def test_split_is_that_of_the_seed_and_refuses_too_few_nodes():
    a, b, other = split(2708, 3), split(2708, 3), split(2708, 4)
    assert [len(part) for part in (a.train, a.validation, a.test)] == [27, 1327, 1354]
    assert torch.equal(a.train, b.train)
    assert not torch.equal(a.train, other.train)
    with pytest.raises(ValueError, match="the train split is empty"):
        split(30, 0)
    with pytest.raises(ValueError, match="share must lie between"):
        split(30, 0, 0.6)


def test_a_torch_geometric_object_is_taken_by_its_attributes():
    g, masks = graph(), torch.arange(3)[:, None] == torch.arange(60) % 3
    names = dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True))
    taken, nodes = of_data(SimpleNamespace(x=g.features, edge_index=g.edge_index, y=g.labels[:, None], **names))
    assert torch.equal(taken.edge_index, g.edge_index)
    assert torch.equal(taken.labels, g.labels)
    assert torch.equal(nodes.validation, masks[1].nonzero().squeeze(1))
    with pytest.raises(ValueError, match="the data have no y, val_mask"):
        of_data(SimpleNamespace(x=g.features, edge_index=g.edge_index, y=None, train_mask=masks[0], test_mask=masks[2]))


def test_principal_components_are_orthogonal_and_too_many_are_refused():
    x = data.principal(graph().features, 4)
    scatter = x.T @ x
    assert float((scatter - scatter.diag().diag()).abs().max()) < 1e-3 * float(scatter.max())
    with pytest.raises(ValueError, match="at most 9 components; got 10"):
        data.principal(graph().features, 10)
