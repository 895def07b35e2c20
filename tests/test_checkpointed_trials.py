"""BPTT in little memory as a method of the experiments: the trial of BPTT, with less kept and more steps taken."""

from dataclasses import replace

import pytest
import torch

from steadygrad.paper.experiments.citation.experiment import quiet
from steadygrad.paper.experiments.citation.experiment import run as classify
from steadygrad.paper.experiments.citation.presets import CORRECTED, PUBLISHED
from steadygrad.paper.experiments.citation.turns import COMPARED, in_turns
from steadygrad.paper.experiments.hyperopt import cost
from steadygrad.paper.experiments.hyperopt.config import HyperoptConfig
from steadygrad.paper.experiments.hyperopt.estimate import estimate
from steadygrad.paper.experiments.hyperopt.problem import Problem
from steadygrad.paper.experiments.methods import CHECKPOINTED, gradient

PLANTED = replace(PUBLISHED["planted"], updates=30)


@pytest.mark.parametrize("method", CHECKPOINTED)
def test_a_citation_trial_learns_as_bptt_does_and_takes_steps_again(method):
    """Two epochs only: as published the network is expansive, and rounding doubles with every epoch."""
    exact, ours = (classify(replace(PLANTED, method=name, epochs=2), quiet) for name in ("bptt", method))
    assert ours["training_loss"] == pytest.approx(exact["training_loss"], rel=1e-5)
    assert ours["test_accuracy"] == exact["test_accuracy"]
    assert exact["evaluations"] == 30 * 2 < ours["evaluations"]


@pytest.mark.parametrize("method", CHECKPOINTED)
def test_at_steady_states_a_whole_training_is_that_of_bptt(method):
    exact, ours = (classify(replace(CORRECTED["planted"], method=name), quiet) for name in ("bptt", method))
    assert ours["training_loss"] == pytest.approx(exact["training_loss"], rel=1e-5)
    assert (ours["test_accuracy"], ours["best_epoch"]) == (exact["test_accuracy"], exact["best_epoch"])


def test_a_diagnosed_trial_compares_methods_in_turns():
    turns = classify(replace(PLANTED, method="bptt-sqrt", epochs=1, diagnose=True), quiet)["measured"]["turns"]
    assert list(turns) == list(COMPARED)
    assert turns["bptt"]["error"] == 0
    assert all(turns[method]["error"] < 1e-5 and turns[method]["mb"] < turns["bptt"]["mb"] for method in CHECKPOINTED)
    assert turns["neumann-rbp"]["error"] > 0.1
    assert [turns[method]["evaluations"] for method in ("bptt", "neumann-rbp")] == [30, 31]
    assert turns["bptt-log"]["evaluations"] > turns["bptt-sqrt"]["evaluations"] > 30
    assert all(turn["cpu_ms"] > 0 for turn in turns.values())


def test_turns_draw_alike_and_leave_the_generator_as_it_was():
    weight = torch.ones(4, requires_grad=True)
    drawn = []

    def epoch(method):
        drawn.append(torch.rand(4))
        (weight * drawn[-1]).sum().backward()
        return 1

    torch.manual_seed(0)
    state = torch.get_rng_state()
    found = in_turns(epoch, {name: gradient(name, 5, 0) for name in ("bptt", "bptt-log")}, [weight], repeats=1)
    assert found["bptt-log"]["error"] == 0
    assert all(torch.equal(one, drawn[0]) for one in drawn)
    assert torch.equal(torch.get_rng_state(), state)
    assert weight.grad is None


@pytest.mark.parametrize("method", CHECKPOINTED)
def test_hypergradients_are_bptts(method):
    config = HyperoptConfig(images=200, batch=50, training_steps=20, method=method)
    problem = Problem.of(config)
    ours, exact = (estimate(replace(config, method=name), problem) for name in (method, "bptt"))
    for name, found in ours.gradients.items():
        torch.testing.assert_close(found, exact.gradients[name], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(("method", "beside"), [("bptt-log", True), ("neumann-rbp", True), ("tbptt", False)])
def test_costs_are_measured_in_turns_with_bptt(method, beside, monkeypatch):
    asked = []

    def fresh(config):
        asked.append(config.method)
        numbers = {"wall_seconds": 2.0, "cpu_seconds": 1.0, "memory_mb": 3.0, "base_mb": 4.0}
        return {**numbers, "loss": 0.5, "products": 0, "gradient": [3.0, 4.0] if config.method == "bptt" else [3.0, 0.0]}

    monkeypatch.setattr(cost, "_fresh", fresh)
    found = cost.cost(HyperoptConfig(task="cost", method=method, repeats=2), quiet)
    assert asked == ([method, "bptt"] if beside else [method]) * 2
    assert ("bptt_cpu_seconds" in found["measured"]) == beside
    assert (found.get("cosine"), found.get("relative")) == ((0.6, 0.8) if beside else (None, None))
