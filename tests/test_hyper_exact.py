"""Exact hypergradients of a whole training in the memory of a few of its states."""

import random
import signal
import subprocess
import sys
import textwrap

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import steadygrad as sg
from steadygrad import hyper
from steadygrad.hyper.batches import Batches
from steadygrad.hyper.replay import affordable
from steadygrad.peak_memory import peak_memory
from trainings import data, in_double, noisy_net, on, small_net, squared


@pytest.fixture(autouse=True)
def double():
    with in_double():
        yield


METHODS = [
    sg.BPTT(checkpoints=1),
    sg.BPTT(checkpoints=3),
    sg.BPTT(checkpoints=4, graphs=1),
    sg.BPTT(checkpoints=50),
    sg.BPTT(memory="sqrt"),
    sg.BPTT(memory="log"),
]
STEPS = 23


def descend(state, hyper, batch):
    """A step of one's own that writes into its state, draws noise, and depends on a counter."""
    x, y = batch
    w = state["w"]
    state["count"].add_(1)
    noise = 0.1 * torch.randn_like(w)
    slope = 2 * x.T @ torch.tanh(x @ w - y) / len(x) / state["count"].item()
    return {"w": w - hyper["rate"] * (slope + hyper["decay"] * w + noise), "count": state["count"]}


def loaders(x, y):
    rows = TensorDataset(x, y)
    return {
        "a list": [(x[:7], y[:7]), (x[7:], y[7:])],
        "a function": lambda t: (x.roll(t, 0)[:9], y.roll(t, 0)[:9]),
        "a function that draws": lambda t: (lambda i: (x[i], y[i]))(torch.randint(len(x), (6,))),
        "a loader": DataLoader(rows, batch_size=3, shuffle=True),
        "a loader with a generator": DataLoader(rows, batch_size=6, shuffle=True, generator=torch.Generator()),
        "a sampler with a generator": DataLoader(
            rows, batch_size=5, sampler=RandomSampler(rows, replacement=True, generator=torch.Generator())
        ),
    }


def problem(kind, batches="a list"):
    torch.manual_seed(0)
    (x, y), (xv, yv) = data(), data()
    given = {"batches": loaders(x, y)[batches]}
    if kind == "own":
        start = {"w": torch.randn(3, 1), "count": torch.tensor(0)}
        return descend, {**given, "state": start}, lambda state, hyper: (state["w"] - 1).square().sum()
    make, net = {"SGD": (hyper.SGD, small_net), "Adam, BatchNorm, dropout": (hyper.Adam, noisy_net)}[kind]
    return make(net(), squared), given, on(xv, yv)


def run(kind, batches="a list", **options):
    step, given, objective = problem(kind, batches)
    values = {"decay": 0.1, "rate": 0.05}
    return hyper.hypergradient(step, values, objective, steps=STEPS, seed=3, on_failure="raise", **given, **options)


KINDS = ["SGD", "Adam, BatchNorm, dropout", "own"]


def check_equal(found, exact):
    assert found.loss == exact.loss
    for name, gradient in exact.gradients.items():
        torch.testing.assert_close(found.gradients[name], gradient, rtol=1e-10, atol=1e-16)
    torch.testing.assert_close(found.state, exact.state, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_equals_bptt(method, kind):
    check_equal(run(kind, method=method), run(kind, method="bptt"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batches", loaders(*data()))
def test_batches_are_made_again(batches, kind):
    check_equal(run(kind, batches, method=sg.BPTT(checkpoints=3)), run(kind, batches, method="bptt"))


def test_draws_of_python_and_numpy_are_repeated():
    (x, y), (xv, yv) = data(), data()

    def batches(t):
        i = [random.randrange(20), int(numpy.random.default_rng().integers(0, 1)), numpy.random.randint(20)]
        return x[i], y[i]

    def gradient(method):
        torch.manual_seed(0)
        random.seed(1)
        numpy.random.seed(2)
        step = hyper.SGD(small_net(), squared)
        return hyper.hypergradient(step, {"decay": 0.1}, on(xv, yv), batches=batches, steps=12, method=method, check=False)

    check_equal(gradient(sg.BPTT(checkpoints=3)), gradient("bptt"))


def test_random_numbers_go_on_as_after_bptt():
    def afterwards(method):
        step, given, objective = problem("Adam, BatchNorm, dropout", "a loader")
        torch.manual_seed(5)
        hyper.hypergradient(step, {"decay": 0.1}, objective, steps=STEPS, method=method, check=False, **given)
        return torch.rand(3), step.last_loss[0]

    for a, b in zip(afterwards(sg.BPTT(memory="log")), afterwards("bptt"), strict=True):
        assert torch.equal(a, b)


def test_every_state_is_seen_once():
    seen = []
    run("own", method=sg.BPTT(checkpoints=3), observe=lambda t, state: seen.append((t, state["count"].item())))
    assert seen == [(t, t) for t in range(1, STEPS + 1)]


def test_steps_are_taken_as_often_as_the_schedule_says():
    calls = []
    (x, y), (xv, yv) = data(), data()

    def loss(model, batch, hyper):
        calls.append(1)
        return squared(model, batch, hyper)

    method = sg.BPTT(checkpoints=4, graphs=2)
    step = hyper.SGD(small_net(), loss)
    hyper.hypergradient(step, {"decay": 0.1}, on(xv, yv), batches=[(x, y)], steps=40, method=method, check=False)
    plan = method.plan(40, known=True)
    assert len(calls) == 40 + plan.steps_again(40) - max(plan.stops()) + 40


def test_in_less_than_a_tenth_of_the_memory():
    (x, y), (xv, yv) = data(200, 16), data(20, 16)

    def peak(method):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
        step = hyper.Adam(net, squared)
        options = {"batches": [(x, y)], "steps": 300, "method": method, "check": False}
        return peak_memory(lambda: hyper.hypergradient(step, {"decay": 0.1}, on(xv, yv), **options))

    assert peak(sg.BPTT(checkpoints=10)) < 0.1 * peak("bptt")


def test_what_cannot_be_repeated_is_reported():
    (x, y), (xv, yv) = data(), data()
    calls = []

    def forgetful(model, batch, hyper):
        calls.append(1)
        return squared(model, batch, hyper) * len(calls)

    step = hyper.SGD(small_net(), forgetful, rate=0.01)
    with pytest.warns(sg.SteadyStateWarning, match="ended elsewhere"):
        hyper.hypergradient(
            step, {"decay": 0.1}, on(xv, yv), batches=[(x, y)], steps=12, method=sg.BPTT(checkpoints=3), check=False
        )


def test_tune_takes_it():
    (x, y), (xv, yv) = data(), data()

    def tuned(method):
        torch.manual_seed(0)
        step = hyper.Adam(noisy_net(), squared)
        return hyper.tune(
            step, {"decay": hyper.Log(0.1)}, on(xv, yv), batches=[(x, y)], steps=9, meta_steps=3, method=method, seed=1,
            progress=False,
        )  # fmt: skip

    found, exact = tuned(sg.BPTT(checkpoints=3)), tuned("bptt")
    assert found.history[-1].method == "BPTT(checkpoints=3)"
    for a, b in zip(found.history, exact.history, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-10)


class TestWhatFits:
    def test_more_memory_takes_fewer_steps(self):
        again = []
        for memory in (30, 60, 120, 400, 2000):
            method = affordable(1000, memory, graph=10, state=1)
            plan = method.plan(1000, known=True)
            again.append(plan.steps_again(1000))
            states, graphs = method.checkpoints, method.graphs
            assert (states - graphs) * 1 + graphs * 10 <= memory + 10
        assert again == sorted(again, reverse=True)

    def test_nothing_where_not_even_a_graph_fits(self):
        assert affordable(1000, 5, graph=10, state=1) is None

    def test_nothing_where_steps_would_be_taken_too_often(self):
        assert affordable(100_000, 12, graph=10, state=1) is None


class TestPlaces:
    @pytest.mark.parametrize("kind", loaders(*data()))
    @pytest.mark.parametrize("at", [0, 1, 5, 17])
    def test_a_stream_goes_on_from_a_place(self, kind, at):
        x, y = data()
        source = Batches.of(loaders(x, y)[kind])
        torch.manual_seed(4)
        stream = source.stream(recall=True)
        for _ in range(at):
            next(stream)
        place, state = stream.place(), torch.get_rng_state()
        expected = [next(stream) for _ in range(15)]
        again = source.resume(place)
        torch.set_rng_state(state)
        for batch in expected:
            for a, b in zip(batch, next(again), strict=True):
                assert torch.equal(a, b)


KILLED = """
    import os, signal, sys, torch
    import steadygrad as sg
    from steadygrad import hyper
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(20, 3), torch.randn(20, 1)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1))
    path, last = sys.argv[1], int(sys.argv[2])
    calls = 0

    def loss(model, batch, hyper):
        global calls
        calls += 1
        if calls == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return (model(batch[0]) - batch[1]).square().mean()

    found = hyper.tune(
        hyper.Adam(net, loss), {"decay": hyper.Log(0.1)}, lambda model, hyper: (model(x) - y).square().mean(),
        batches=[(x, y)], steps=12, meta_steps=3, method=sg.BPTT(checkpoints=3), seed=1, progress=False, checkpoint=path,
    )
    print(repr([step.loss for step in found.history]), repr(found.hyper["decay"].item()))
"""


def test_killed_in_the_middle_of_a_way_back_a_tuning_goes_on(tmp_path):
    def run(name, last):
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / name), str(last)]
        return subprocess.run(command, capture_output=True, text=True)

    whole = run("whole", 0)
    assert whole.returncode == 0, whole.stderr
    plan = sg.BPTT(checkpoints=3).plan(12, known=True)
    a_meta_step = 24 + plan.steps_again(12) - max(plan.stops())
    killed = run("killed", a_meta_step + 40)  # past the second training, which takes 12, and the checks of the first step
    assert killed.returncode == -signal.SIGKILL
    again = run("killed", 0)
    assert again.returncode == 0, again.stderr
    assert again.stdout == whole.stdout


@pytest.mark.parametrize("seed", range(2))
def test_a_tensor_whose_gradient_is_rounding_raises_no_alarm_when_steps_are_taken_again(seed):
    """A bias before a normalisation moves nothing: what Adam keeps of its gradient is noise, other noise the second time."""
    torch.manual_seed(seed)
    (x, y), (vx, vy) = data(12), data(9)
    model = nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 3, 2), nn.GroupNorm(3, 3), nn.SiLU(), nn.Flatten(), nn.Linear(6, 1)
    )
    step, options = hyper.Adam(model, squared, rate=0.02), {"batches": [(x, y)], "steps": 6}
    found = [
        hyper.hypergradient(step, {"beta1": 0.6}, on(vx, vy), method=method, **options)
        for method in (sg.BPTT(memory="log"), "bptt")
    ]
    assert found[0].gradients["beta1"].item() == pytest.approx(found[1].gradients["beta1"].item(), rel=1e-6)
