"""The hyperparameter experiment: data, hypergradients against the exact one, what a trial leaves behind."""

import json
import math
from dataclasses import replace

import pytest
import torch

from steadygrad.paper.experiments.experiment import merge, settings
from steadygrad.paper.experiments.hyperopt import HYPEROPT, HyperoptConfig, cost
from steadygrad.paper.experiments.hyperopt.data import batches, digits, mislabel
from steadygrad.paper.experiments.hyperopt.estimate import Distance, errors, estimate, exact
from steadygrad.paper.experiments.hyperopt.presets import CORRECTED, PUBLISHED
from steadygrad.paper.experiments.hyperopt.problem import Problem, free, network
from steadygrad.peak_memory import peak_memory

SMALL = {"images": 60, "training_steps": 12, "steps": 6, "meta_steps": 3, "reference_every": 2}
AS_PUBLISHED = replace(PUBLISHED, **SMALL, batch=20)
AT_REST = replace(CORRECTED, **SMALL, held_out=100)


def quiet(done, total, note):
    assert 0 < done <= total


def relative(config, problem):
    values = problem.values()
    found, reference = (free(f(config, problem).gradients, values) for f in (estimate, exact))
    return Distance.of(found, reference).relative


def test_the_network_is_the_published_one():
    net = network(layers=3, seed=0)
    assert [tuple(p.shape) for p in net.parameters() if p.dim() == 2] == [(50, 784), (50, 50), (50, 50), (10, 50)]
    assert net[0].weight.std().item() == pytest.approx(math.exp(-3), rel=0.02)
    start = Problem.of(PUBLISHED).start
    assert {name: tuple(c.value.shape) for name, c in start.items()} == {"rate": (8,), "momentum": (8,)}
    assert torch.equal(start["rate"].value.log(), -torch.ones(8))
    assert torch.equal(start["momentum"].value.logit(), torch.zeros(8))


def test_digits_are_split_without_overlap():
    data = digits(images=500, held_out=1000)
    assert [len(part[1]) for part in (data.train, data.validation, data.test)] == [500, 1000, 8500]
    assert data.train[0].mean(0).abs().max() < 1e-6  # the mean of the training images is subtracted from all
    assert not data.wrong.any()
    assert digits(images=100, held_out=0).validation is None


def test_mislabelled_images_have_another_digit():
    labels = torch.arange(200) % 10
    changed, wrong = mislabel(labels, share=0.3, seed=1)
    assert wrong.sum() == 60
    assert torch.equal(changed != labels, wrong)
    assert changed.min() >= 0
    assert changed.max() <= 9
    assert not torch.equal(mislabel(labels, 0.3, seed=2)[1], wrong)


def test_batches_leave_a_remainder_out():
    data = (torch.randn(50, 3), torch.zeros(50))
    assert [len(b[1]) for b in batches(data, 20)] == [20, 20]
    assert len(batches(data, 0)) == 1
    with pytest.raises(ValueError, match="between 0"):
        batches(data, 51)


def test_free_numbers_have_the_slope_of_their_parametrisation():
    problem = Problem.of(AS_PUBLISHED)
    u = {name: c.start(torch.zeros(())).requires_grad_() for name, c in problem.start.items()}
    value = {name: problem.start[name].constrained(u[name]) for name in u}
    weights = {name: torch.randn(8, generator=torch.Generator().manual_seed(i)) for i, name in enumerate(u)}
    sum((weights[name] * value[name]).sum() for name in u).backward()
    expected = torch.cat([u[name].grad for name in sorted(u)])
    torch.testing.assert_close(free(weights, problem.values()), expected)


def test_forward_mode_is_the_exact_hypergradient():
    assert relative(replace(AS_PUBLISHED, method="forward"), Problem.of(AS_PUBLISHED)) < 1e-5


def test_tbptt_over_all_steps_is_exact_and_over_few_is_not():
    problem = Problem.of(AS_PUBLISHED)
    assert relative(replace(AS_PUBLISHED, method="tbptt", steps=12), problem) < 1e-6
    assert relative(replace(AS_PUBLISHED, method="tbptt", steps=2), problem) > 0.1


@pytest.mark.parametrize("method", ["auto", "neumann-rbp", "cg-rbp"])
def test_corrected_implicit_hypergradients_agree_with_bptt_at_the_steady_state(method):
    config = replace(AT_REST, training_steps=400, steps=300, decay=0.1, products=300, method=method)
    assert relative(config, Problem.of(config)) < 1e-3


def test_corrected_but_stopped_early_they_do_not():
    config = replace(AT_REST, training_steps=5, decay=0.1, method="auto")
    assert relative(config, Problem.of(config)) > 0.1


def test_rates_and_momenta_are_named_where_training_has_converged():
    """Trap 5: they do not move the steady state."""
    config = replace(AS_PUBLISHED, batch=0, layers=0, images=30, training_steps=1500, rate=2.0, last="step")
    problem = Problem.of(config)
    problem.step.__dict__["decay"] = 0.1  # with a minimum to converge to
    assert set(estimate(config, problem).degenerate) == {"rate", "momentum"}


def test_memory_of_neumann_is_flat_in_the_length_of_training_and_that_of_bptt_is_not():
    problem = Problem.of(AS_PUBLISHED)

    def peak(method, steps):
        config = replace(AS_PUBLISHED, method=method, training_steps=steps)
        return peak_memory(lambda: estimate(config, problem))

    peak("neumann-rbp", 20)  # the first hypergradient of a step also compares its derivative with differences
    assert peak("neumann-rbp", 80) < 1.05 * peak("neumann-rbp", 20)
    assert peak("bptt", 80) > 3 * peak("bptt", 20)


@pytest.mark.parametrize("config", [AS_PUBLISHED, AT_REST], ids=["as-published", "corrected"])
def test_a_tuning_lowers_the_meta_loss_and_repeats(config):
    first, second = (HYPEROPT.run(replace(config, trajectory=True), quiet) for _ in range(2))
    first.pop("measured"), second.pop("measured")
    assert first == second
    json.dumps(first, allow_nan=False)
    assert first["meta_loss"][-1] < first["meta_loss"][0]
    assert len(first["meta_loss"]) == 3
    assert first["reference"]["meta_step"] == [1, 2]
    assert first["last_training"]["step"][-1] == 12
    assert (first["test_accuracy"] is None) == (config.mode == "as-published")


def test_weights_of_wrong_labels_fall():
    config = replace(AT_REST, training_steps=60, meta_steps=6, method="auto", reference_every=0)
    weight = HYPEROPT.run(config, quiet)["weight"]
    assert weight["right"][0] == weight["wrong"][0] == 1
    assert weight["wrong"][-1] < 1 < weight["right"][-1]


def test_trajectories_are_kept_at_the_papers_meta_steps():
    config = replace(AS_PUBLISHED, meta_steps=20, training_steps=5, method="tbptt", steps=2, trajectory=True, reference_every=0)
    way = HYPEROPT.run(config, quiet)["trajectory"]
    assert list(way) == ["20"]
    assert way["20"]["step"] == [1, 2, 3, 4, 5]
    assert {len(state) for state in way["20"]["state"]} == {32}


def test_errors_list_every_method_and_every_way_to_take_the_last_step():
    found = errors(replace(AS_PUBLISHED, task="errors", method="all"), Problem.of(AS_PUBLISHED), quiet)
    entries = {(e["method"], e["steps"], e["last"]): e for e in found["entries"]}
    assert len(entries) == 17
    assert entries["forward", None, None]["relative"] < 1e-5
    assert entries["neumann-rbp", 6, "average"]["noise"] > 0
    assert entries["neumann-rbp", 6, "fresh"]["noise"] > 0
    assert entries["neumann-rbp", 10, "full"]["products"] == 11


def test_neumann_and_bptt_are_measured_in_turns_and_the_fastest_counts(monkeypatch):
    seconds = {"neumann-rbp": iter([3.0, 1.0]), "bptt": iter([4.0, 8.0])}
    order: list[tuple[str, str]] = []

    def fresh(config):
        order.append((config.method, config.last))
        taken = next(seconds[config.method])
        names = ("wall_seconds", "cpu_seconds", "memory_mb", "base_mb")
        return {**dict.fromkeys(names, taken), "loss": 0.5, "products": 7, "gradient": [1.0, taken]}

    monkeypatch.setattr(cost, "_fresh", fresh)
    found = cost.cost(replace(AS_PUBLISHED, task="cost", method="neumann-rbp", last="step", repeats=2), quiet)
    assert order == [("neumann-rbp", "step"), ("bptt", "full")] * 2
    assert (found["measured"]["cpu_seconds"], found["measured"]["bptt_cpu_seconds"]) == (1.0, 4.0)
    assert found["cosine"] == pytest.approx(13 / math.sqrt(10 * 17))  # of the first of each, (1, 3) and (1, 4)


def test_a_measurement_counts_memory_above_data_and_libraries():
    """In processes of their own, as the experiment takes it: this one may hold pages that other tests left behind."""
    config = replace(AS_PUBLISHED, task="cost", method="bptt")
    few, found = (cost._fresh(replace(config, training_steps=steps)) for steps in (50, 300))
    assert found["memory_mb"] > 2 * few["memory_mb"] + 10
    assert found["cpu_seconds"] > 0
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training_steps": 0}, "training_steps must be at least 1"),
        ({"reference_every": -1}, "reference_every must be 0 or more"),
        ({"last": "fresh", "method": "rbp-uniform"}, "needs neumann-rbp"),
        ({"mode": "corrected"}, "give decay > 0"),
        ({"method": "all"}, "task=errors"),
        ({"task": "errors"}, "task=errors"),
    ],
)
def test_bad_configs_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(HyperoptConfig(), **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": 0}, "images must lie between 1 and 10000"),
        ({"held_out": 9950}, "leave test images"),
        ({"wrong": 1.5}, "wrong must lie between 0 and 1"),
        ({"batch": 61}, "batch must lie between 0"),
        ({"layers": -1}, "layers must be 0 or more"),
    ],
)
def test_bad_problems_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Problem.of(replace(AS_PUBLISHED, **change))


def test_presets_have_every_trial_once_and_both_modes():
    for name, preset in HYPEROPT.presets.items():
        assert len(merge(HYPEROPT, preset.trials)) == len(preset.trials), name
        if name != "long":
            assert {settings(trial)["mode"] for trial in preset.trials} == {"as-published", "corrected"}
            assert {trial.task for trial in preset.trials} == {"tune", "errors", "cost"}
    assert max(trial.training_steps for trial in HYPEROPT.presets["standard"].trials) == 1000
    assert max(trial.training_steps for trial in HYPEROPT.presets["paper"].trials) == 1500
