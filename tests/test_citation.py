"""Messages on a graph against dense algebra, both networks, one trial end to end, and what users bring."""

from __future__ import annotations

import copy
import json
import pickle
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import cross_entropy

from steadygrad.datasets import Graph
from steadygrad.experiments.citation import (
    CITATION,
    CitationConfig,
    Diffusion,
    PublishedGRU,
    Sparse,
    Split,
    data,
    looking,
    neighbours,
    normalised,
    of_data,
    own,
    planted,
    split,
    train,
)
from steadygrad.experiments.citation.experiment import build, quiet, run
from steadygrad.experiments.citation.model import Encoder
from steadygrad.experiments.citation.presets import CORRECTED, PUBLISHED
from steadygrad.experiments.citation.training import answer, gradient, logistic
from steadygrad.fixedpoint import Picard
from steadygrad.gradient import BPTT, Implicit
from steadygrad.linear import Auto, Dense
from steadygrad.records import Record
from steadygrad.report import Figure, Table
from steadygrad.report.citation import section

# 0–1–2–0 is a triangle (0–1 twice), 3 hangs on 2, 4 loops, 5 is alone.
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 0], [1, 0, 2, 0, 2, 4, 1]])
NODES = 6
TRIAL = replace(CORRECTED["planted"], epochs=4)


def graph() -> Graph:
    return planted(60, classes=3, features=9, seed=1)


def diffusion(g: Graph, seed: int = 0) -> Diffusion:
    encode = Encoder(Sparse.of_dense(g.features), 5, g.classes, 0.0, seed)
    return Diffusion(normalised(g.edge_index, g.nodes), encode, alpha=0.3).double()


def gru(g: Graph, size: int = 4) -> PublishedGRU:
    return PublishedGRU(neighbours(g.edge_index, g.nodes), data.principal(g.features, size), g.classes).double()


def gradients(network: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in network.parameters()])


def with_edges(edges: Tensor, features: Tensor | None = None) -> tuple[Graph, Split]:
    x = torch.eye(NODES) if features is None else features
    masks = torch.eye(3, dtype=torch.bool).repeat(1, 2)
    names = ("train_mask", "val_mask", "test_mask")
    return own(edges, x, torch.tensor([0, 0, 0, 1, 1, 1]), **dict(zip(names, masks, strict=True)))


def test_sparse_product_is_the_dense_one_with_equal_places_added():
    rows, columns = torch.tensor([0, 2, 0, 1, 2]), torch.tensor([1, 3, 1, 0, 0])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    A = Sparse.of_entries(rows, columns, values, (3, 4))
    dense = torch.zeros(3, 4, dtype=torch.float64).index_put_((rows, columns), values, accumulate=True)
    h = torch.randn(4, 2, dtype=torch.float64)
    assert torch.equal(A.dense(), dense)
    torch.testing.assert_close(A @ h, dense @ h)
    torch.testing.assert_close(A @ h.float(), (dense @ h).float())
    torch.testing.assert_close(Sparse.of_dense(dense) @ h, dense @ h)
    torch.testing.assert_close(A.with_values(2 * A.values) @ h, 2 * dense @ h)


def test_sparse_product_has_first_and_second_derivatives():
    A = Sparse.of_dense((torch.rand(5, 7, dtype=torch.float64) > 0.5).double())
    h = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda h: A @ h, h)
    assert gradgradcheck(lambda h: (A @ h).sin(), h)
    (grad,) = torch.autograd.grad((A @ h).sum(), h)
    torch.testing.assert_close(grad, A.dense().T @ torch.ones(5, 3, dtype=torch.float64))


def test_sparse_matrix_refuses_a_state_that_does_not_fit():
    with pytest.raises(ValueError, match=r"shape \(6, 6\) cannot be multiplied with \(5, 2\)"):
        _ = neighbours(EDGES, NODES) @ torch.ones(5, 2)


def test_networks_can_be_copied_and_pickled_after_use():
    network = diffusion(graph())
    before = answer(network, Picard(max_steps=50)).scores.detach()
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        torch.testing.assert_close(answer(other, Picard(max_steps=50)).scores.detach(), before)


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


def test_published_update_is_a_gru_cell_on_the_sum_of_neighbours():
    g = graph()
    network = gru(g)
    h = torch.randn(g.nodes, 4, dtype=torch.float64)
    cell = network.cell
    for p in (cell.bias_ih, cell.bias_hh):
        nn.init.normal_(p)
    a = neighbours(g.edge_index, g.nodes).dense().double() @ h
    i, o = a @ cell.weight_ih.T + cell.bias_ih, h @ cell.weight_hh.T + cell.bias_hh
    r, u = (torch.sigmoid(i[:, k : k + 4] + o[:, k : k + 4]) for k in (0, 4))
    n = torch.tanh(i[:, 8:] + r * o[:, 8:])
    dynamics = network.dynamics()
    torch.testing.assert_close(dynamics.update(h), (1 - u) * n + u * h)
    torch.testing.assert_close(dynamics.update(h), cell(a, h))
    assert torch.equal(dynamics.start, network.features)


def test_published_weights_are_kaiming_normal_and_biases_zero():
    network = PublishedGRU(neighbours(EDGES, NODES), torch.randn(NODES, 64), 7, seed=3)
    assert float(network.cell.weight_ih.detach().std()) == pytest.approx((2 / 64) ** 0.5, rel=0.03)
    assert not any(p.any() for p in (network.cell.bias_ih, network.cell.bias_hh, network.out.bias))


def test_implicit_and_unrolled_gradients_agree_in_the_corrected_mode():
    g, forward = graph(), Picard(max_steps=2000, rtol=1e-13)
    network, nodes = diffusion(g), split(g.nodes, 0, 0.2).train
    found: dict[str, Tensor] = {}
    for name, method in {"unrolled": BPTT(), "auto": Implicit(Auto()), "dense": Implicit(Dense())}.items():
        network.zero_grad()
        cross_entropy(answer(network, forward, method).scores[nodes], g.labels[nodes]).backward()
        found[name] = gradients(network)
    assert found["unrolled"].norm() > 0
    for name in ("auto", "dense"):
        torch.testing.assert_close(found[name], found["unrolled"], rtol=1e-6, atol=1e-6 * float(found["unrolled"].norm()))


def test_diffusion_is_the_solution_of_its_linear_equation_and_contracts_by_one_minus_alpha():
    g = graph()
    network = diffusion(g)
    alpha, A = network.alpha.detach(), network.adjacency.dense().double()
    with torch.no_grad():
        expected = torch.linalg.solve(torch.eye(g.nodes) - (1 - alpha) * A, alpha * network.encode())
        found = answer(network, Picard(max_steps=2000, rtol=1e-13))
    torch.testing.assert_close(found.scores, expected, rtol=1e-9, atol=1e-10)
    assert found.solution is not None
    assert looking.spectral_radius(network.dynamics(), found.solution.value) == pytest.approx(1 - float(alpha), rel=0.01)


@pytest.mark.parametrize("logit", [-50.0, 50.0])
def test_diffusion_contracts_whatever_its_weights(logit):
    network = diffusion(graph())
    nn.init.constant_(network.logit, logit)
    assert network.floor <= float(network.alpha.detach()) <= 1


def test_alpha_outside_its_range_is_refused():
    with pytest.raises(ValueError, match=r"alpha must lie between floor=0.01 and 1; got 0.0"):
        Diffusion(normalised(EDGES, NODES), Encoder(Sparse.of_dense(torch.eye(NODES)), 2, 2, 0.0), alpha=0.0)


@pytest.mark.parametrize("make", [diffusion, gru])
def test_permuting_nodes_permutes_outputs(make):
    g = graph()
    order = torch.randperm(g.nodes, generator=torch.Generator().manual_seed(4))
    place = torch.argsort(order)
    other = Graph("permuted", g.features[order], g.labels[order], place[g.edge_index], g.class_names)
    network, permuted = make(g), make(other)
    if isinstance(network, PublishedGRU):
        permuted.features.copy_(network.features[order])
    forward = Picard(max_steps=60, rtol=0)
    torch.testing.assert_close(answer(permuted, forward).scores, answer(network, forward).scores[order], rtol=1e-9, atol=1e-9)


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


def test_own_graph_is_refused_with_reasons():
    labels, masks = torch.tensor([0, 1, 0]), torch.eye(3, dtype=torch.bool)
    edges, x = torch.tensor([[0, 1], [1, 2]]), torch.eye(3)
    good = {"train_mask": masks[0], "val_mask": masks[1], "test_mask": masks[2]}
    own(edges, x, labels, **good)
    with pytest.raises(ValueError, match="the validation split is empty"):
        own(edges, x, labels, **{**good, "val_mask": torch.zeros(3, dtype=torch.bool)})
    with pytest.raises(ValueError, match="a node is in two splits"):
        own(edges, x, labels, **{**good, "val_mask": masks[0]})
    with pytest.raises(ValueError, match=r"test_mask must be bool of shape \(3,\).*choose one: test_mask\[:, 0\]"):
        own(edges, x, labels, **{**good, "test_mask": masks})
    with pytest.raises(ValueError, match="features hold inf or NaN"):
        own(edges, x / 0, labels, **good)
    with pytest.raises(ValueError, match="edge_index must lie between 0 and 2"):
        own(edges + 1, x, labels, **good)


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


def test_baseline_learns_and_bears_missing_classes():
    g = planted(240)
    nodes = split(g.nodes, 0, 0.3)
    scores = logistic(g.features, g.labels, nodes)
    assert float((scores.argmax(1) == g.labels)[nodes.test].float().mean()) > 0.6
    torch.testing.assert_close(scores.sum(dim=1), torch.ones(g.nodes))
    one = (g.labels == 1).nonzero().squeeze(1)
    rest = (g.labels != 1).nonzero().squeeze(1)
    assert (logistic(g.features, g.labels, Split(one[:5], one[5:], rest)).argmax(1) == 1).all()


@pytest.mark.parametrize("settings", [CORRECTED, PUBLISHED], ids=["corrected", "as-published"])
def test_trials_are_determined_by_their_seed(settings):
    config = replace(settings["planted"], epochs=3, validate_every=1, updates=20, method="rbp")
    first, second = ({k: v for k, v in run(config, quiet).items() if k != "measured"} for _ in range(2))
    assert first == second
    assert first["training_loss"] != run(replace(config, seed=1), quiet)["training_loss"]


@pytest.mark.parametrize("method", ["bptt", "tbptt", "artbp-uniform", "artbp-poisson", "rbp", "cg-rbp", "neumann-rbp", "auto"])
@pytest.mark.parametrize("settings", [CORRECTED, PUBLISHED], ids=["corrected", "as-published"])
def test_every_method_records_what_the_report_needs(settings, method):
    result = run(replace(settings["planted"], epochs=2, validate_every=1, updates=30, method=method), quiet)
    json.dumps(result, allow_nan=False)
    seen = result["validation"]
    assert seen["epoch"] == [0, 1, 2]
    assert result["validation_accuracy"] == pytest.approx(max(seen["accuracy"]), rel=1e-5)
    assert result["test_accuracy"] == pytest.approx(seen["test"][result["best_epoch"]], rel=1e-5)
    solves = method in ("rbp", "cg-rbp", "neumann-rbp", "auto")
    assert (seen["adjoint_residual"][0] is not None) == solves
    assert (result["products"] > 0) == solves
    assert result["evaluations"] >= 2
    assert len(result["difference"]["relative"]) == 30
    nodes = 240 * (8 if settings is PUBLISHED else 3)
    assert seen["difference_scaled"][0] < seen["difference_relative"][0] * nodes


def test_as_published_takes_exactly_the_updates_asked_for():
    config = replace(PUBLISHED["planted"], epochs=2, updates=17, method="tbptt")
    assert run(config, quiet)["evaluations"] == 2 * 17


def test_diagnosed_trial_says_whether_the_state_is_steady():
    g = graph()
    nodes = split(g.nodes, 0, 0.1)
    settings = {
        "corrected": (CORRECTED["planted"], g.features),
        "as-published": (PUBLISHED["planted"], data.principal(g.features, 4)),
    }
    found = {
        mode: train(replace(config, epochs=1, method="neumann-rbp", diagnose=True), g, nodes, features=x).result
        for mode, (config, x) in settings.items()
    }
    assert found["corrected"]["diagnosis"]["trustworthy"]
    assert not found["as-published"]["diagnosis"]["trustworthy"]
    assert found["corrected"]["spectral_radius_initial"] == pytest.approx(1 - CORRECTED["planted"].alpha, rel=0.01)
    assert found["as-published"]["measured"]["epoch_mb"] > 0


def test_corrected_mode_learns_the_planted_partition_better_than_the_baseline():
    ours = run(replace(CORRECTED["planted"], epochs=20), quiet)
    alone = run(replace(CORRECTED["planted"], method="baseline"), quiet)
    assert ours["test_accuracy"] > 0.85 > alone["test_accuracy"]


def test_warm_start_gives_the_same_trial_to_the_tolerance():
    config = replace(TRIAL, dropout=0.0, rtol=1e-6)
    cold, warm = (run(replace(config, warm=w), quiet)["training_loss"] for w in (False, True))
    assert warm == pytest.approx(cold, rel=1e-3)


def test_references_belong_to_the_corrected_mode():
    for method in ("appnp", "gcn"):
        assert run(replace(TRIAL, method=method), quiet)["products"] == 0
    with pytest.raises(ValueError, match="appnp is a reference for the corrected mode"):
        run(replace(PUBLISHED["planted"], method="appnp"), quiet)


def test_unknown_method_and_settings_are_refused():
    with pytest.raises(ValueError, match="'appnp' is no gradient method; choose one of bptt"):
        gradient("appnp", 5, 0, Auto())
    with pytest.raises(ValueError, match="validate_every must be at least 1; got 0"):
        run(CitationConfig(graph="planted", validate_every=0), quiet)
    with pytest.raises(ValueError, match="epochs must be at least 1; got 0"):
        run(replace(TRIAL, epochs=0), quiet)


def test_a_loss_that_is_not_finite_ends_the_trial_with_what_there_was():
    result = run(replace(PUBLISHED["planted"], epochs=6, rate=1e30, method="tbptt", updates=5), quiet)
    assert len(result["training_loss"]) < 6
    assert "test_accuracy" in result


def test_presets_have_every_method_the_same_splits_and_unseen_seeds():
    for name in ("smoke", "standard", "paper"):
        trials = CITATION.presets[name].trials
        for mode, count in (("as-published", 9), ("corrected", 11)):
            assert len({t.method for t in trials if t.mode == mode}) == count
        assert all(t.seed < 10 for t in trials)
    published = [t for t in CITATION.presets["paper"].trials if t.mode == "as-published"]
    assert {(t.updates, t.steps, t.epochs, t.rate, t.momentum, t.weight_decay, t.share) for t in published} == {
        (100, 5, 2000, 1e-3, 0.9, 5e-4, 0.01)
    }
    assert {(t.graph, t.components) for t in published} == {("cora", 64), ("pubmed", 16)}


def test_networks_are_built_as_asked():
    g = graph()
    assert isinstance(build(TRIAL, g, g.features), Diffusion)
    assert isinstance(build(PUBLISHED["planted"], g, data.principal(g.features, 4)), PublishedGRU)


def records_of(
    accuracies: dict[str, float], seeds: int = 4, graph: str = "cora", mode: str = "corrected", moved: float = 1e-4
) -> list[Record]:
    """Records as `run` leaves them, with these accuracies and a tenth of a point between the seeds."""
    made = []
    for method, accuracy in accuracies.items():
        for seed in range(seeds):
            value = accuracy + 0.001 * seed
            seen = {
                "epoch": [0, 1],
                "accuracy": [0.2, value],
                "difference_relative": [0.1, moved],
                "difference_scaled": [1e-4, 1e-7],
            }
            result = {"test_accuracy": value, "validation_accuracy": value, "training_loss": [2.0, 1.0], "best_epoch": 1}
            result |= {"validation": {**seen, "adjoint_residual": [0.1, None]}, "evaluations": 20, "products": 4}
            result |= {"difference": {"scaled": [0.1, 1e-7], "relative": [0.1, moved]}, "spectral_radius": 0.9}
            config = {"graph": graph, "mode": mode, "method": method, "seed": seed, "epochs": 2, "diagnose": seed == 0}
            made.append(Record("citation", config, result, None))
    return made


PAPERS = {
    "baseline": 0.40,
    "bptt": 0.25,
    "tbptt": 0.46,
    "rbp": 0.29,
    "cg-rbp": 0.39,
    "neumann-rbp": 0.46,
    "artbp-uniform": 0.28,
    "artbp-poisson": 0.42,
}


def verdicts(records: list[Record]) -> dict[str, str]:
    return {claim.id: claim.verdict for claim in section(records).claims}


def test_verdicts_follow_the_records():
    both = [*records_of(PAPERS), *records_of(PAPERS, mode="as-published")]
    assert verdicts(both) == {"G1": "reproduced", "G2": "reproduced", "G3": "reproduced"}
    moving = [*records_of(PAPERS), *records_of({**PAPERS, "bptt": 0.46}, mode="as-published", moved=0.1)]
    assert verdicts(moving) == {"G1": "reproduced in one mode", "G2": "reproduced", "G3": "reproduced in one mode"}
    level = {**PAPERS, "artbp-poisson": 0.46, "rbp": 0.46}
    neither = [*records_of(level), *records_of(level, mode="as-published", moved=0.1)]
    assert verdicts(neither) == {"G1": "not reproduced", "G2": "not reproduced", "G3": "reproduced in one mode"}


def test_a_graph_that_fails_fails_its_mode():
    failed = records_of({**PAPERS, "tbptt": 0.6}, graph="pubmed")
    assert verdicts([*records_of(PAPERS), *failed, *records_of(PAPERS, mode="as-published")])["G1"] == "reproduced in one mode"


def test_too_few_seeds_and_the_planted_graph_give_no_verdict():
    few = [*records_of(PAPERS, seeds=2), *records_of(PAPERS, seeds=2, mode="as-published")]
    assert verdicts(few)["G1"] == verdicts(few)["G2"] == "no data"
    assert set(verdicts(records_of(PAPERS, graph="planted")).values()) == {"no data"}
    assert set(verdicts([]).values()) == {"no data"}


def test_section_has_the_papers_numbers_beside_ours_and_draws():
    made = section([*records_of({**PAPERS, "appnp": 0.7, "auto": 0.7}), *records_of(PAPERS, mode="as-published")])
    (accuracies,) = (block for block in made.blocks if isinstance(block, Table) and block.name == "citation-g1-cora")
    row = next(row for row in accuracies.rows if row[0] == "Neumann-RBP")
    assert row == ("Neumann-RBP", "46.63 ± 8.3", "46.15 ± 0.1", "46.15 ± 0.1", "4", "46.15 ± 0.1", "46.15 ± 0.1", "4")
    assert [row[0] for row in accuracies.rows][0::8] == ["Baseline", "auto"]
    for figure in (block for block in made.blocks if isinstance(block, Figure)):
        assert len(figure.draw().axes) == 4
    assert any(isinstance(block, str) and "Cora +0.0 ± 0.0 points over 4 seeds" in block for block in made.blocks)


def test_longer_trials_are_told_apart():
    long = [replace(r, config={**r.config, "epochs": 500}) for r in records_of({"neumann-rbp": 0.5}, seeds=1)]
    made = section([*records_of(PAPERS), *long])
    (others,) = (block for block in made.blocks if isinstance(block, Table) and block.caption.startswith("Trials with other"))
    assert others.rows == (("Cora, corrected", "epochs 500", "Neumann-RBP", "0", "2.000", "1.000", "1", "50.00", "50.00"),)
    assert "46.2" in made.claims[0].ours


def test_the_example_classifies_its_graph():
    path = Path(__file__).parents[1] / "examples" / "own_graph.py"
    example = SimpleNamespace(**runpy.run_path(str(path)))
    _, _, trained = example.classify()
    assert trained.result["test_accuracy"] > 0.9
