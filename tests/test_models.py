"""Models to take away: their gradients against dense algebra, the habits of nn.Module and scikit-learn, and what they refuse."""

import copy

import pytest
import torch
from sklearn.base import clone
from torch import nn

import steadygrad as sg
from graphs import EDGES, NODES
from steadygrad import models
from steadygrad.models.graph import normalised


def dense_adjacency():
    return normalised(EDGES, NODES) @ torch.eye(NODES, dtype=torch.float64)


@pytest.mark.parametrize("given", ["edges", "matrix"])
def test_diffusion_is_that_of_dense_algebra_with_its_gradient(given):
    layer = models.GraphDiffusion(0.2, search=sg.Picard(max_steps=1000, rtol=1e-13)).double()
    z = torch.randn(NODES, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    h = layer(z, EDGES if given == "edges" else normalised(EDGES, NODES))
    eye = torch.eye(NODES, dtype=torch.float64)
    exact = torch.linalg.solve(eye - (1 - layer.alpha) * dense_adjacency(), layer.alpha * z)
    torch.testing.assert_close(h, exact, rtol=1e-10, atol=1e-11)
    wanted = torch.autograd.grad(exact.square().sum(), [z, layer.logit])
    found = torch.autograd.grad(h.square().sum(), [z, layer.logit])
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)
    assert layer.solution.adjoint.converged
    assert not layer.solution.value.requires_grad


def test_penalty_is_zero_at_the_start_and_pulls_back():
    layer = models.GraphDiffusion(0.3)
    assert layer.penalty().item() == 0
    with torch.no_grad():
        layer.logit += 1
    layer.penalty().backward()
    assert float(layer.logit.grad) > 0
    with pytest.raises(ValueError, match=r"alpha must lie between floor=0\.01 and 1; got 1"):
        models.GraphDiffusion(1.0)


def two_rings():
    """Two rings of ten, one link between them; a class each."""
    ring = torch.arange(10)
    one = torch.stack([ring, ring.roll(-1)])
    edges = torch.cat([one, one + 10, torch.tensor([[0], [10]])], dim=1)
    labels = torch.arange(20) // 10
    known = torch.zeros(20, dtype=torch.bool)
    known[[5, 15]] = True
    return torch.eye(20), edges, labels, known


def test_graph_classifier_finds_two_rings_from_two_labels():
    x, edges, labels, known = two_rings()
    found = models.GraphClassifier(dropout=0.0, epochs=30).fit(x, edges, labels, known)
    assert found.score(x, edges, labels, ~known) >= 0.9
    probabilities = found.predict_proba(x, edges)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(20))
    assert torch.equal(found.predict(x, edges), probabilities.argmax(1))
    again = models.GraphClassifier(dropout=0.0, epochs=30).fit(x.to_sparse(), edges, labels, known)
    assert torch.equal(again.predict_proba(x, edges), probabilities), "the same seed gives the same weights"


def test_validation_keeps_the_epoch_that_did_best_there():
    x, edges, labels, known = two_rings()
    validation = torch.zeros(20, dtype=torch.bool)
    validation[[4, 16]] = True
    # So large a rate spoils later epochs: what is kept must be no worse on the validation nodes than the last one.
    kept = models.GraphClassifier(rate=3.0, epochs=8).fit(x, edges, labels, known, validation)
    last = models.GraphClassifier(rate=3.0, epochs=8).fit(x, edges, labels, known)
    assert kept.score(x, edges, labels, validation) >= last.score(x, edges, labels, validation)
    first = models.GraphClassifier(rate=3.0, epochs=1).fit(x, edges, labels, known)
    assert kept.score(x, edges, labels, validation) >= first.score(x, edges, labels, validation)


def test_labels_outside_of_the_masks_are_not_looked_at():
    x, edges, labels, known = two_rings()
    unknown = torch.where(known, labels, -1)
    found = models.GraphClassifier(dropout=0.0, epochs=5).fit(x, edges, labels, known).predict_proba(x, edges)
    blind = models.GraphClassifier(dropout=0.0, epochs=5).fit(x, edges, unknown, known).predict_proba(x, edges)
    assert torch.equal(found, blind)


def test_graph_classifier_refuses_what_it_cannot_use():
    x, edges, labels, known = two_rings()
    classifier = models.GraphClassifier(epochs=1)
    with pytest.raises(RuntimeError, match="nothing is learned yet; call fit"):
        classifier.predict(x, edges)
    with pytest.raises(ValueError, match=r"train_mask must be bool of shape \(20,\)"):
        classifier.fit(x, edges, labels, known.long())
    with pytest.raises(ValueError, match="with 0 nodes"):
        classifier.fit(x, edges, labels, torch.zeros_like(known))
    with pytest.raises(ValueError, match="labels must be int64"):
        classifier.fit(x, edges, labels.float(), known)
    with pytest.raises(ValueError, match="features must be finite"):
        classifier.fit(x / 0, edges, labels, known)
    with pytest.raises(ValueError, match="epochs must be at least 1; got 0"):
        models.GraphClassifier(epochs=0)
    with pytest.raises(TypeError, match=r"epochs must be a whole number; got 2\.5"):
        models.GraphClassifier(epochs=2.5)
    with pytest.raises(TypeError, match="features must be a tensor; got ndarray"):
        classifier.fit(x.numpy(), edges, labels, known)
    with pytest.raises(TypeError, match="train_mask must be a tensor; got list"):
        classifier.fit(x, edges, labels, known.tolist())
    with pytest.raises(ValueError, match=r"one column at least; got shape \(20, 0\)"):
        classifier.fit(x[:, :0], edges, labels, known)
    with pytest.raises(ValueError, match="the 20 columns of those that were learned from; got 7"):
        classifier.fit(x, edges, labels, known).predict(torch.ones(20, 7), edges)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda edges: edges.float(), r"whole numbers of shape \(2, E\).*torch.float32"),
        (lambda edges: edges.T, r"got torch.int64 of shape \(21, 2\)"),
        (lambda edges: edges - 1, "nodes from -1 to 18, but there are 20 nodes"),
        (lambda edges: edges + 1, "nodes from 1 to 20, but there are 20 nodes"),
    ],
)
def test_edges_that_are_none_are_refused(change, message):
    x, edges, _, _ = two_rings()
    with pytest.raises(ValueError, match=message):
        models.GraphDiffusion()(x, change(edges))


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30, 3e38])
def test_the_unit_of_features_changes_nothing(size):
    """Squares of large ones overflow, and a row of infinite length would become one of zeros."""
    x, edges, labels, known = two_rings()
    found = models.GraphClassifier(dropout=0.0, epochs=5).fit(x, edges, labels, known)
    torch.testing.assert_close(found.predict_proba(size * x, edges), found.predict_proba(x, edges), rtol=1e-5, atol=1e-6)


def test_features_with_a_graph_of_their_own():
    x, edges, labels, known = two_rings()
    given = (2 * x.requires_grad_()).abs()
    found = models.GraphClassifier(dropout=0.0, epochs=3).fit(given, edges, labels, known)
    assert not found.predict_proba(given, edges).requires_grad
    assert x.grad is None


def test_a_channel_of_zero_weights_has_a_gradient():
    model = models.EquilibriumClassifier((1, 8, 8), classes=3, channels=2)
    with torch.no_grad():
        model.layer.cell.inner.weight[0].zero_()
    model(torch.ones(2, 1, 8, 8)).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    with pytest.raises(ValueError, match=r"shape \(count, 1, 8, 8\); got \(1, 8, 8\)"):
        model(torch.ones(1, 8, 8))


def test_settings_that_break_a_promise_are_refused():
    with pytest.raises(ValueError, match="floor must be at least 0 and below 1"):
        models.GraphDiffusion(floor=-1.0)
    with pytest.raises(TypeError, match=r"hidden must be a whole number; got 3\.5"):
        models.AssociativeMemory((2, 2), hidden=3.5)


def test_image_classifier_contracts_whatever_its_weights():
    torch.manual_seed(0)
    model = models.EquilibriumClassifier((3, 8, 12), classes=4, channels=2).double()
    with torch.no_grad():
        model.layer.cell.inner.weight.mul_(100)
    x = torch.zeros(1, 2, 4, 6, dtype=torch.float64)
    model.layer.cell.inner.bias.data.zero_()  # tanh is steepest at 0: the bound is met
    J = torch.autograd.functional.jacobian(lambda h: model.layer.cell(x, h.view_as(x)).flatten(), torch.zeros(x.numel()).double())
    assert float(J.abs().sum(dim=1).max()) == pytest.approx(0.9, rel=1e-6)
    assert model(torch.randn(5, 3, 8, 12, dtype=torch.float64)).shape == (5, 4)
    with pytest.raises(ValueError, match="divide by four; got 10 × 12: pad it"):
        models.EquilibriumClassifier((1, 10, 12))
    with pytest.raises(ValueError, match="bound must lie between 0 and 1"):
        models.ContractiveCell(2, bound=1.0)


def test_image_classifier_has_the_gradient_of_a_long_unrolling():
    torch.manual_seed(0)
    model = models.EquilibriumClassifier((1, 8, 8), classes=3, channels=2, search=sg.Picard(max_steps=500, rtol=1e-13)).double()
    images, labels = torch.randn(4, 1, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    nn.functional.cross_entropy(model(images), labels).backward()
    found = [p.grad for p in model.parameters()]
    model.layer.gradient = sg.BPTT()
    model.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    torch.testing.assert_close(found, [p.grad for p in model.parameters()], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("model", [models.AssociativeMemory((2, 3), seed=4), models.GraphClassifier(hidden=3)], ids=repr)
def test_estimators_have_the_habits_of_scikit_learn(model):
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    assert eval(repr(model), vars(models)).get_params() == model.get_params()
    assert twin.set_params(seed=9) is twin
    assert twin.get_params() == {**model.get_params(), "seed": 9}
    with pytest.raises(ValueError, match="has no parameter speed; it has "):
        twin.set_params(speed=1)


def test_memory_speaks_the_words_of_scikit_learn_too():
    images = torch.tensor([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    memory = models.AssociativeMemory((2, 2), hidden=16).fit(images)
    assert memory.stored_.clean == (0.0, 0.0)
    assert torch.equal(memory.predict(images), memory.recall(images))
    assert memory.score(images, images) == 1.0
    assert memory.score(images, 1 - images) == 0.0
    with pytest.raises(ValueError, match="y must be None"):
        memory.fit(images, y=[0, 1])


def test_modules_are_copied_without_their_last_solve():
    network = models.GraphNetwork(4, 2)
    network(torch.randn(NODES, 4), EDGES)
    assert network.diffuse.solution is not None
    assert copy.deepcopy(network).diffuse.solution is None
