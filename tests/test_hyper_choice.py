"""The method that a hypergradient takes by itself: exact while memory allows, implicit at rest, and what it says otherwise."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import steadygrad as sg
from steadygrad import hyper
from steadygrad.hyper import memory as memory_module
from steadygrad.hyper.batches import Batches
from steadygrad.hyper.memory import Kept, allowed, readable
from steadygrad.hyper.problem import Inner
from steadygrad.hyper.rest import Travel
from steadygrad.peak_memory import peak_memory
from trainings import data, in_double, noisy_net, on, small_net, squared


@pytest.fixture(autouse=True)
def double():
    with in_double():
        yield


def descend(state, hyper, batch):
    """A step of one's own, with a counter that is written in place."""
    x, y = batch
    w = state["w"]
    state["count"].add_(1)
    slope = 2 * x.T @ torch.tanh(x @ w - y) / len(x)
    return {"w": w - hyper["rate"] * (slope + hyper["decay"] * w), "count": state["count"]}


def of_own():
    x, y = data()
    start = {"w": torch.randn(3, 1), "count": torch.tensor(0)}
    return descend, {"state": start, "batches": [(x, y)]}, lambda state, hyper: (state["w"] - 1).square().sum()


def of_optimiser(make, net, loader=False):
    (x, y), (xv, yv) = data(), data()
    batches = DataLoader(TensorDataset(x, y), batch_size=5, shuffle=True) if loader else [(x, y)]
    return make(net(), squared), {"batches": batches}, on(xv, yv)


PROBLEMS = {
    "SGD": lambda: of_optimiser(hyper.SGD, small_net),
    "Adam, BatchNorm, dropout, a loader": lambda: of_optimiser(hyper.Adam, noisy_net, loader=True),
    "a step of one's own": of_own,
}


VALUES = {"decay": 0.1, "rate": 0.05}
NETS = {
    "dense": lambda: nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.BatchNorm1d(32), nn.Linear(32, 1)),
    "convolutional": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 1)
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
class TestExact:
    def run(self, problem, **options):
        torch.manual_seed(0)
        step, given, objective = problem()
        return hyper.hypergradient(step, VALUES, objective, steps=12, seed=3, on_failure="raise", **given, **options)

    def test_what_fits_is_unrolled(self, problem):
        found, exact = self.run(problem), self.run(problem, method="bptt")
        assert found.gradients == exact.gradients
        assert found.loss == exact.loss
        assert found.method == exact.method == "BPTT()"
        assert found.reason.startswith("exact: the graphs of 12 steps take about")
        assert found.reason in repr(found)
        assert exact.reason == ""

    def test_a_few_numbers_that_do_not_fit_go_forward(self, problem):
        found, exact = self.run(problem, memory=1), self.run(problem, method="bptt")
        assert found.method == "Forward()"
        assert found.reason.startswith("exact")
        assert found.loss == pytest.approx(exact.loss, rel=1e-12)
        for name in VALUES:
            torch.testing.assert_close(found.gradients[name], exact.gradients[name], rtol=1e-8, atol=1e-14)

    @pytest.mark.parametrize("memory", [None, 1])
    def test_every_state_is_seen_once(self, problem, memory):
        seen = []
        found = self.run(problem, memory=memory, observe=lambda t, state: seen.append(t))
        assert seen == list(range(1, 13))
        count = found.state.get("count")
        assert count is None or count.item() == 12


class TestMemory:
    """What the graphs take is known from one step, near enough to the peak of back-propagation through all of them."""

    def run(self, net, make, **options):
        torch.manual_seed(0)
        x, y = data(64, 16)
        step = make(NETS[net](), squared)
        values = {"decay": step.per_tensor(0.1), "rate": step.per_tensor(0.01)}
        options = {"batches": [(x, y)], "steps": 30, "check": False, "on_failure": "ignore", **options}
        return hyper.hypergradient(step, values, on(x, y), **options)

    @pytest.mark.parametrize("make", [hyper.SGD, hyper.Adam])
    @pytest.mark.parametrize("net", NETS)
    def test_the_choice_is_made_near_the_true_peak(self, net, make):
        peak = peak_memory(lambda: self.run(net, make, method="bptt"))
        assert self.run(net, make, memory=1.25 * peak).method == "BPTT()"
        assert self.run(net, make, memory=0.75 * peak).method != "BPTT()"

    def test_is_kept_to(self):
        least, most = (peak_memory(lambda m=m: self.run("dense", hyper.SGD, steps=120, memory=m)) for m in (3e5, 6e6))
        whole = peak_memory(lambda: self.run("dense", hyper.SGD, steps=120, method="bptt"))
        assert least < 1e6
        assert most < 1.25 * 6e6 < whole

    def test_of_one_step_nothing_takes_less(self):
        assert self.run("dense", hyper.SGD, steps=1, memory=1).method == "BPTT()"

    def test_counts_what_is_alive_once(self):
        with Kept() as kept:
            a = torch.ones(8)
            views = a[2:], a.view(2, 4)
            a.exp()
        assert kept.bytes() == 64
        del a, views
        assert kept.bytes() == 0

    def test_does_not_load_the_compiler(self):
        """A mode that sees operations makes torch load it, in seconds, unless it is told not to."""
        code = """
import sys, torch, steadygrad.hyper as hyper
step = hyper.SGD(torch.nn.Linear(1, 1), lambda model, batch, hyper: model(batch).square().mean())
def objective(model, hyper): return model(torch.ones(1, 1)).square().mean()
hyper.hypergradient(step, {"decay": 0.1}, objective, batches=[torch.ones(2, 1)], steps=2)
print("torch._dynamo" in sys.modules)
"""
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert printed.split() == ["False"]

    def test_half_of_what_is_free_by_default(self, monkeypatch):
        cpu = torch.device("cpu")
        assert allowed(2e9, cpu) == 2e9
        monkeypatch.setattr(memory_module, "_free_on_host", lambda: iter([8e9, 3e9]))
        assert allowed(None, cpu) == 1.5e9
        monkeypatch.setattr(memory_module, "_free_on_host", lambda: iter([]))
        assert allowed(None, cpu) == memory_module.UNKNOWN

    def test_the_limit_of_a_container_counts(self, tmp_path):
        def free():
            return list(memory_module._of_control_group(tmp_path))

        assert free() == []
        (tmp_path / "memory.current").write_text("700\n")
        (tmp_path / "memory.max").write_text("max\n")
        assert free() == []
        (tmp_path / "memory.max").write_text("1000\n")
        assert free() == [300]
        (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 200\n")
        assert free() == [500]

    def test_in_words(self):
        assert [readable(size) for size in (12, 1.5e3, 34e6, 2.25e9)] == ["12 bytes", "1.5 kB", "34 MB", "2.2 GB"]

    @pytest.mark.parametrize(
        ("options", "error", "words"),
        [
            ({"memory": 0}, ValueError, "must be positive; got 0"),
            ({"memory": float("nan")}, ValueError, "must be positive; got nan"),
            ({"memory": "2 GB"}, TypeError, "a number of bytes, such as 2e9"),
            ({"memory": 1e9, "method": "bptt"}, ValueError, "for method=None, which chooses by it; 'bptt' would ignore it"),
        ],
    )
    def test_bad_input(self, options, error, words):
        with pytest.raises(error, match=words):
            self.run("dense", hyper.SGD, **options)
        (x, y), step = data(), hyper.SGD(nn.Linear(3, 1), squared)
        with pytest.raises(error, match=words):
            hyper.tune(step, {"decay": hyper.Log(0.1)}, on(x, y), batches=[(x, y)], steps=2, progress=False, **options)


def weighted(model, batch, hyper):
    x, y = batch
    return (hyper["examples"] * (model(x) - y).square().squeeze(1)).mean()


class TestBeyondMemory:
    """Ridge regression with a weight for every example: too many numbers for forward mode."""

    def run(self, steps, memory=1, batches=None, **options):
        torch.manual_seed(0)
        (x, y), (xv, yv) = data(20), data()
        step = hyper.SGD(nn.Linear(3, 1), weighted, rate=0.1, momentum=0.5, decay=0.1)
        options = {"memory": memory, "batches": [(x, y)] if batches is None else batches(x, y), "steps": steps, **options}
        return hyper.hypergradient(step, {"examples": torch.rand(20) + 0.5}, on(xv, yv), **options)

    def exact(self, steps, **options):
        return self.run(steps, memory=None, method=options.pop("method", "bptt"), on_failure="ignore", **options)

    def test_what_has_come_to_rest_is_differentiated_there(self):
        found = self.run(200, on_failure="raise")
        assert found.method == "Implicit(Auto())"
        assert "come to rest" in found.reason
        torch.testing.assert_close(found.gradients, self.exact(200).gradients, rtol=1e-5, atol=1e-9)

    def test_what_has_not_is_said_not_to_be_exact(self):
        with pytest.warns(sg.SteadyStateWarning, match=r"not come to rest.*50 terms of a Neumann series.*not exact.*memory="):
            found = self.run(20)
        assert found.method == "Implicit(Neumann(steps=50))"
        expected = self.exact(20, method=sg.Implicit(sg.Neumann(steps=50)))
        assert torch.equal(found.gradients["examples"], expected.gradients["examples"])
        with pytest.raises(sg.SteadyStateError, match="not exact"):
            self.run(20, on_failure="raise")

    @pytest.mark.parametrize("part", [0.05, 0.3])
    def test_what_has_not_is_taken_again_where_some_of_its_states_fit(self, part):
        """Mini-batches never come to rest."""

        def in_turn(x, y):
            return lambda t: (x.roll(t, 0), y.roll(t, 0))

        size = self.graph_of_a_step()
        found = self.run(200, memory=part * 200 * size, batches=in_turn, on_failure="raise")
        assert found.method.startswith("BPTT(checkpoints=")
        assert found.reason.startswith("exact, taking steps again: training has not come to rest")
        expected = self.exact(200, batches=in_turn)
        torch.testing.assert_close(found.gradients, expected.gradients, rtol=1e-12, atol=0)
        assert found.loss == expected.loss

    def graph_of_a_step(self):
        least, most = 1.0, 1e6
        for _ in range(40):  # where one step's bytes times two are just allowed
            middle = (least + most) / 2
            fits = self.run(2, memory=middle, on_failure="ignore", check=False).method == "BPTT()"
            least, most = (least, middle) if fits else (middle, most)
        return most / 2

    @pytest.mark.parametrize(("steps", "memory"), [(20, 1), (200, 1), (200, 3e5)])
    def test_training_runs_once(self, steps, memory):
        seen = []
        self.run(steps, memory=memory, on_failure="ignore", observe=lambda t, state: seen.append(t))
        assert seen == list(range(1, steps + 1))

    def test_advice_never_names_what_has_failed(self):
        method = sg.Implicit(sg.Auto(max_steps=2))
        with pytest.warns(sg.SteadyStateWarning) as caught:
            self.run(20, memory=None, method=method)
        said = " ".join(str(warning.message) for warning in caught)
        assert "ended MAX_STEPS" in said
        assert 'method="bptt" is exact' in said
        assert '"auto"' not in said


class TestOngoing:
    """Steps that go on with a training: its end is meant, as soon as there is one."""

    def run(self, steps, names=("decay",), **options):
        torch.manual_seed(0)
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.3)
        values = {name: {"decay": 0.1, "rate": 0.3}[name] for name in names}
        start = hyper.hypergradient(step, values, on(xv, yv), batches=[(x, y)], steps=300, method="bptt").state
        if options.pop("moved", False):
            start["parameters"] = {name: p + 0.5 for name, p in start["parameters"].items()}
        given = {"batches": [(x, y)], "steps": steps, "state": start, "on_failure": "raise", **options}
        return hyper.hypergradient(step, values, on(xv, yv), **given)

    def test_a_few_steps_at_rest_give_the_derivative_of_the_end(self):
        found = self.run(5, ongoing=True)
        assert found.method == "Implicit(Auto())"
        assert "come to rest" in found.reason
        torch.testing.assert_close(found.gradients, self.run(300, method="bptt").gradients, rtol=1e-6, atol=0)
        assert self.run(5).method == "BPTT()"

    def test_steps_that_still_move_are_differentiated_themselves(self):
        found = self.run(5, ongoing=True, moved=True)
        assert found.method == "BPTT()"
        assert "not come to rest" in found.reason
        assert found.gradients == self.run(5, method="bptt", moved=True).gradients

    def test_a_rate_does_not_move_the_end_so_the_steps_count(self):
        found = self.run(5, ("decay", "rate"), ongoing=True)
        assert found.method == "BPTT()"
        assert "could not be differentiated well" in found.reason
        assert found.gradients == self.run(5, ("decay", "rate"), method="bptt").gradients

    def test_dropout_never_rests(self):
        torch.manual_seed(0)
        (x, y), step = data(), hyper.SGD(noisy_net(), squared)
        found = hyper.hypergradient(step, {"decay": 0.1}, on(x, y), batches=[(x, y)], steps=60, seed=1, ongoing=True)
        assert found.method == "BPTT()"


class TestRest:
    """h ← A h + b, whose distance from its steady state is known."""

    def rest(self, a, steps, batches=None, start=None):
        a = torch.as_tensor(a)
        start = torch.ones(len(a)) if start is None else start
        b = torch.linspace(1, 2, len(a))

        def step(state, hyper, batch):
            return a @ state + b

        inner = Inner.of(step, {"unused": 1.0}, lambda state, hyper: state.sum(), Batches.of([None]), steps, start)
        travel, state = Travel(inner, steps), inner.state
        for t in range(steps):
            travel.see(t, state, None if batches is None else batches(t))
            state = step(state, {}, None)
        end = torch.linalg.solve(torch.eye(len(a)) - a, b)
        return travel.rest(state), float((state - end).norm() / state.norm())

    @pytest.mark.parametrize("rate", [0.5, 0.9, 0.99, 0.999])
    @pytest.mark.parametrize("steps", [5, 50, 200])
    def test_the_distance_left_is_the_true_one(self, rate, steps):
        found, true = self.rest([[rate]], steps)
        assert found.left == pytest.approx(true, rel=1e-2, abs=1e-12)
        assert found.state == (true <= 1e-3)
        assert found.derivative == (true <= 1e-3 and rate**steps <= 0.01)

    def test_a_slow_map_is_not_at_rest_though_its_steps_are_small(self):
        found, true = self.rest([[0.99999]], 100, start=torch.zeros(1))
        assert true > 0.99
        assert not found.state

    def test_to_and_fro(self):
        """As with momentum: eigenvalues 0.95 exp(±0.5i)."""
        turn = torch.tensor(0.5)
        a = 0.95 * torch.stack([torch.stack([turn.cos(), -turn.sin()]), torch.stack([turn.sin(), turn.cos()])])
        found, true = self.rest(a, 400)
        assert found.derivative
        assert true < 1e-3
        assert not self.rest(a, 20)[0].state

    def test_what_no_longer_moves_rests(self):
        found, true = self.rest([[0.1]], 100)
        assert found.derivative
        assert true < 1e-12

    def test_growth_and_too_few_steps_do_not(self):
        assert not self.rest([[1.5]], 20)[0].state
        assert not self.rest([[0.01]], 1)[0].state

    @pytest.mark.parametrize(
        ("batches", "rests"),
        [
            (lambda t: (torch.ones(2), {"x": [torch.ones(1)]}), True),
            (lambda t: (torch.ones(2), {"x": [torch.full((1,), float(t // 90))]}), False),
            (lambda t: torch.ones(1 + t % 2), False),
            (lambda t: [torch.ones(2)] * (1 + t % 2), False),
            (lambda t: {"x": 1} if t % 2 else {"y": 1}, False),
            (lambda t: object(), False),
        ],
    )
    def test_different_batches_have_no_steady_state_in_common(self, batches, rests):
        assert self.rest([[0.5]], 100, batches)[0].state == rests


def test_attention_in_a_step_of_ones_own_is_differentiable():
    """torch's fused kernels have no second derivative."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4)

    def step(state, hyper, batch):
        with torch.enable_grad():
            w = state if state.requires_grad else state.detach().requires_grad_()
            q = x @ w
            loss = functional.scaled_dot_product_attention(q, q, x).square().mean() + hyper["decay"] * w.square().sum()
            (g,) = torch.autograd.grad(loss, w, create_graph=True)
        return state - 0.1 * g

    def run(**options):
        return hyper.hypergradient(
            step, {"decay": options.pop("decay", 0.1)}, lambda w, hyper: (w - 1).square().sum(), batches=[None], steps=6,
            state=torch.eye(4), on_failure="raise", **options,
        )  # fmt: skip

    eps = 1e-5
    expected = (run(decay=0.1 + eps).loss - run(decay=0.1 - eps).loss) / (2 * eps)
    for options in ({}, {"memory": 1}, {"method": "bptt"}):
        assert run(**options).gradients["decay"].item() == pytest.approx(expected, rel=1e-6)
    assert run(method=sg.Implicit(sg.NormalCG(steps=3))).adjoint is not None
