"""Both networks, each gradient method on them, one trial end to end, and the presets."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from graphs import EDGES, NODES, diffusion, graph, gru
from steadygrad.fixedpoint import Picard
from steadygrad.gradient import BPTT, TBPTT, Gradient, Implicit
from steadygrad.linear import Auto, Dense, Neumann, NormalCG
from steadygrad.paper.datasets import Graph
from steadygrad.paper.experiments.citation import (
    CITATION,
    CitationConfig,
    Diffusion,
    PublishedGRU,
    Split,
    data,
    looking,
    neighbours,
    normalised,
    planted,
    split,
    train,
)
from steadygrad.paper.experiments.citation.experiment import build, quiet, run
from steadygrad.paper.experiments.citation.model import Encoder
from steadygrad.paper.experiments.citation.presets import CORRECTED, PUBLISHED
from steadygrad.paper.experiments.citation.training import answer, logistic
from steadygrad.paper.experiments.methods import CHECKPOINTED, gradient
from steadygrad.sparse import SparseMatrix

TRIAL = replace(CORRECTED["planted"], epochs=4)


def test_networks_can_be_copied_and_pickled_after_use():
    network = diffusion(graph())
    before = answer(network, Picard(max_steps=50)).scores.detach()
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        torch.testing.assert_close(answer(other, Picard(max_steps=50)).scores.detach(), before)


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


EXACT = {
    "unrolled": BPTT(),
    "auto": Implicit(Auto(rtol=1e-10)),
    "dense": Implicit(Dense()),
    "neumann": Implicit(Neumann(steps=800)),
    "cg": Implicit(NormalCG(steps=120)),
}


def gradients(network: nn.Module, g: Graph, method: Gradient, forward: Picard) -> Tensor:
    nodes = split(g.nodes, 0, 0.2).train
    network.zero_grad()
    cross_entropy(answer(network, forward, method).scores[nodes], g.labels[nodes]).backward()
    return torch.cat([p.grad.flatten() for p in network.parameters()])


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_implicit_and_unrolled_gradients_agree_in_the_corrected_mode(alpha):
    g, forward = graph(), Picard(max_steps=600, rtol=0)  # the state is there long before the unrolled adjoint is: 0.95^T
    network = diffusion(g, alpha=alpha)
    found = {name: gradients(network, g, method, forward) for name, method in EXACT.items()}
    size = float(found["unrolled"].norm())
    assert size > 1e-3
    for name in ("auto", "dense", "neumann", "cg"):
        assert float((found[name] - found["unrolled"]).norm()) < 1e-6 * size, name


def test_few_terms_are_truncated_unrolling_and_miss_the_slow_mode():
    """P2 on the graph: K + 1 terms of the series are TBPTT over K + 1 steps, and both are far from exact where 1 − α = 0.95."""
    g, forward = graph(), Picard(max_steps=600, rtol=0)
    network = diffusion(g, alpha=0.05)
    exact = gradients(network, g, BPTT(), forward)
    series = gradients(network, g, Implicit(Neumann(steps=5)), forward)
    assert float((gradients(network, g, TBPTT(steps=6), forward) - series).norm()) < 1e-9 * float(exact.norm())
    assert float((series - exact).norm()) > 0.3 * float(exact.norm())


def test_cold_start_has_no_error_in_the_slowest_mode():
    """Why a warm start does not pay: h₀ = z agrees with h* on the eigenvector of Â for 1, D^½ 1 on every connected part."""
    g = graph()
    network = diffusion(g, alpha=0.05)
    values, vectors = torch.linalg.eigh(network.adjacency.dense().double())
    slow = vectors[:, values > 1 - 1e-6]
    assert slow.shape[1] >= 1
    with torch.no_grad():
        h = answer(network, Picard(max_steps=3000, rtol=1e-14)).scores
        z = network.dynamics().start
    torch.testing.assert_close(slow.T @ z, slow.T @ h, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(z, h, atol=1e-2)


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
        Diffusion(normalised(EDGES, NODES), Encoder(SparseMatrix.of_dense(torch.eye(NODES)), 2, 2, 0.0), alpha=0.0)


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
    config = replace(settings["planted"], epochs=3, validate_every=1, updates=20, method="rbp-uniform")
    first, second = ({k: v for k, v in run(config, quiet).items() if k != "measured"} for _ in range(2))
    assert first == second
    assert first["training_loss"] != run(replace(config, seed=1), quiet)["training_loss"]


@pytest.mark.parametrize(
    "method", ["bptt", "tbptt", "artbp-uniform", "artbp-poisson", "rbp-uniform", "cg-rbp", "neumann-rbp", "auto"]
)
@pytest.mark.parametrize("settings", [CORRECTED, PUBLISHED], ids=["corrected", "as-published"])
def test_every_method_records_what_the_report_needs(settings, method):
    result = run(replace(settings["planted"], epochs=2, validate_every=1, updates=30, method=method), quiet)
    json.dumps(result, allow_nan=False)
    seen = result["validation"]
    assert seen["epoch"] == [0, 1, 2]
    assert result["validation_accuracy"] == pytest.approx(max(seen["accuracy"]), rel=1e-5)
    assert result["test_accuracy"] == pytest.approx(seen["test"][result["best_epoch"]], rel=1e-5)
    solves = method in ("rbp-uniform", "cg-rbp", "neumann-rbp", "auto")
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
        for mode, count in (("as-published", 10), ("corrected", 11)):
            assert len({t.method for t in trials if t.mode == mode} - set(CHECKPOINTED)) == count
        assert all(t.seed < 10 for t in trials)
    for mode in ("as-published", "corrected"):
        again = [(t.method, t.seed) for t in CITATION.presets["standard"].trials if t.mode == mode and t.method in CHECKPOINTED]
        assert again == [("bptt-sqrt", 0), ("bptt-log", 0), ("bptt-sqrt", 1), ("bptt-sqrt", 2)]
    published = [t for t in CITATION.presets["paper"].trials if t.mode == "as-published"]
    assert {(t.updates, t.steps, t.epochs, t.rate, t.momentum, t.weight_decay, t.share) for t in published} == {
        (100, 5, 2000, 1e-3, 0.9, 5e-4, 0.01)
    }
    assert {(t.graph, t.components) for t in published} == {("cora", 64), ("pubmed", 16)}


def test_networks_are_built_as_asked():
    g = graph()
    assert isinstance(build(TRIAL, g, g.features), Diffusion)
    assert isinstance(build(PUBLISHED["planted"], g, data.principal(g.features, 4)), PublishedGRU)
