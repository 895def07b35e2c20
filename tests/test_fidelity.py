"""What *as published* takes over from the released code, and that records of before it are still the same trials."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import steadygrad as sg
from steadygrad.paper.experiments import EXPERIMENTS
from steadygrad.paper.experiments.citation import data
from steadygrad.paper.experiments.citation.experiment import build, run
from steadygrad.paper.experiments.citation.model import Linear
from steadygrad.paper.experiments.citation.presets import EARLIER, PUBLISHED
from steadygrad.paper.experiments.experiment import settings
from steadygrad.paper.experiments.hopfield import Hopfield, HopfieldConfig
from steadygrad.paper.experiments.hopfield.experiment import run as hopfield
from steadygrad.paper.experiments.hopfield.looking import spectral_radius
from steadygrad.paper.experiments.hopfield.presets import PUBLISHED as HOPFIELD
from steadygrad.paper.experiments.hopfield.training import Learning, objective, settle
from steadygrad.paper.experiments.hyperopt.data import Shuffled
from steadygrad.paper.experiments.methods import gradient
from steadygrad.paper.records import trial_id

RESULTS = Path(__file__).parents[1] / "results"


def quiet(done, total, note): ...


def test_every_committed_record_is_a_trial_of_a_preset_under_its_own_name():
    """Fields that came later are left out where they are as before, and RBP is spelled as it was."""
    for name, experiment in EXPERIMENTS.items():
        known = {experiment.trial(trial) for kind in ("standard", "long") for trial in experiment.presets[kind].trials}
        stored = {path.stem for path in (RESULTS / name).glob("*.json")}
        assert stored, name
        extra = stored - known
        configs = [json.loads((RESULTS / name / f"{stem}.json").read_text())["config"] for stem in sorted(extra)]
        assert not extra, (name, configs[:2])


def test_later_fields_do_not_change_the_name_of_an_earlier_trial():
    config = HopfieldConfig(method="rbp-uniform")
    assert settings(config)["method"] == "rbp"
    assert not {"linearise", "shuffle", "ridge", "leak"} & set(settings(config))
    assert settings(replace(config, ridge=1e-5))["ridge"] == 1e-5
    assert trial_id("hopfield", settings(config)) != trial_id("hopfield", settings(replace(config, shuffle=True)))


@pytest.mark.parametrize("steps", [0, 3])
def test_linearised_at_the_step_before_the_last_is_listing_1(steps):
    """v ← Jᵀv, g ← g + v with J = ∂h_T/∂h_{T−1}, then gᵀ ∂h_T/∂W, by plain autograd."""
    T = 6
    model = Hopfield(5, 4, slope=2.0, scale=0.3).double()
    x = (torch.rand(3, 5, dtype=torch.float64) > 0.5).double()
    c, h = model.clamped(x), model.start(x)
    with torch.no_grad():
        for _ in range(T - 1):
            h = model(h, c)
    before = h.clone().requires_grad_()
    last = model(before, c)
    (v,) = torch.autograd.grad(objective(model, last, x, "state"), last, retain_graph=True)
    g = v
    for _ in range(steps):
        (v,) = torch.autograd.grad(last, before, v, retain_graph=True)
        g = g + v
    expected = torch.autograd.grad(last, list(model.parameters()), g)
    solution, state = settle(model, x, sg.Picard(max_steps=T - 1, rtol=0), gradient("neumann-rbp", steps, 0), previous=True)
    assert solution.steps == T - 1
    torch.testing.assert_close(state.detach(), last.detach())
    found = torch.autograd.grad(objective(model, state, x, "state"), list(model.parameters()))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_unrolled_methods_go_back_through_all_updates():
    for method, updates in (("tbptt", 50), ("bptt", 50), ("neumann-rbp", 49)):
        schedule = replace(HOPFIELD, method=method).schedule
        assert (schedule.forward.max_steps, schedule.previous) == (updates, updates == 49)


def test_images_are_shuffled_anew_in_every_pass_and_by_the_seed():
    def orders(seed):
        learning = Learning(Hopfield(4, 2), torch.eye(4), replace(HOPFIELD, passes=3, seed=seed).schedule, lambda _: sg.BPTT())
        found = []
        for learning.done in range(3):
            found.append(learning._images().argmax(1).tolist())
        return found

    assert sorted(orders(0)[0]) == [0, 1, 2, 3]
    assert len({tuple(order) for order in orders(0)}) > 1
    assert orders(0) == orders(0) != orders(1)


def test_cora_as_listed_has_the_double_entries():
    once, listed = data.graph("cora"), data.graph("cora", "listed")
    assert listed.edge_index.shape[1] - once.edge_index.shape[1] == 302
    assert len(torch.unique(listed.edge_index, dim=1).T) == once.edge_index.shape[1]


def test_pubmed_as_listed_would_have_few_more_and_counts_once():
    once, listed = data.graph("pubmed"), data.graph("pubmed", "listed")
    assert (listed.edge_index.shape[1] - once.edge_index.shape[1], listed.edge_index.shape[1]) == (22, 88_670)
    assert PUBLISHED["pubmed"].edges == "once"


def test_pubmed_as_published_has_seven_outputs():
    g = data.graph("planted")
    assert PUBLISHED["pubmed"].outputs == 7
    assert build(replace(PUBLISHED["planted"], outputs=7), g, data.principal(g.features, 4)).out.out_features == 7
    with pytest.raises(ValueError, match="at least the 3 classes; got 2"):
        build(replace(PUBLISHED["planted"], outputs=2), g, data.principal(g.features, 4))


def test_the_released_baseline_is_a_linear_layer_that_sees_no_graph():
    config = replace(PUBLISHED["planted"], method="linear", epochs=30, rate=0.1)
    g = data.graph("planted")
    network = build(config, g, data.principal(g.features, 4))
    assert isinstance(network, Linear)
    assert sum(p.numel() for p in network.parameters()) == 4 * 3 + 3
    found = run(config, quiet)
    assert found["training_loss"][-1] < 0.9 * found["training_loss"][0]
    assert found["test_accuracy"] > 0.4
    assert found["evaluations"] == found["products"] == 0
    with pytest.raises(ValueError, match="take --mode as-published"):
        build(replace(config, mode="corrected"), g, g.features)


def test_minibatches_are_drawn_anew_when_all_have_been_used():
    x = torch.arange(10).float().unsqueeze(1)
    batches = Shuffled((x, torch.arange(10)), 3, seed=0)
    assert len(batches) == 3
    first, second = ([batches(t)[1].tolist() for t in range(start, start + 3)] for start in (0, 3))
    assert len({label for batch in first for label in batch}) == 9
    assert first != second
    assert [batches(t)[1].tolist() for t in range(3)] == first  # going back gives the same again
    assert batches(1)[0].squeeze(1).tolist() == [float(label) for label in batches(1)[1]]


def test_as_published_departs_from_the_earlier_settings_in_the_named_points_only():
    later = {field.name for field in dataclasses.fields(PUBLISHED["cora"]) if "before" in field.metadata}
    assert later == {"linearise", "ridge", "edges", "outputs"}
    for name, config in EARLIER.items():
        changed = {key for key in settings(PUBLISHED[name]) if settings(PUBLISHED[name])[key] != settings(config).get(key)}
        assert changed <= later


def test_the_leak_of_the_text_doubles_the_weights():
    ours, doubled = (Hopfield(5, 4, slope=2.0, scale=0.3, factor=factor).double() for factor in (2.0, 1.0))
    with torch.no_grad():
        for weight in doubled.parameters():
            weight *= 2
    x = (torch.rand(3, 5, dtype=torch.float64) > 0.5).double()
    h = torch.randn(3, 9, dtype=torch.float64)
    c = ours.clamped(x)
    torch.testing.assert_close(c, doubled.clamped(x))
    torch.testing.assert_close(ours(h, c), doubled(h, c))
    torch.testing.assert_close(ours.energy(h, c), doubled.energy(h, c))
    assert spectral_radius(ours, h) == pytest.approx(spectral_radius(doubled, h))
    small = replace(HOPFIELD, passes=1, side=14, hidden=16, updates=5, method="bptt")
    text, released = (hopfield(replace(small, leak=leak), quiet)["training_l1"] for leak in ("text", "released"))
    assert text != released
