"""Modules of all sorts, and memory: BatchNorm, dropout, tied and frozen parts; flat in the training steps."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import steadygrad as sg
from steadygrad import hyper
from steadygrad.peak_memory import peak_memory
from trainings import data, difference, in_double, noisy_net, on, squared


@pytest.fixture(autouse=True)
def double():
    with in_double():
        yield


class TestBatchNormAndDropout:
    def test_implicit_knows_that_the_statistics_follow_the_weights(self):
        """Frozen statistics would make the scale of weights before BatchNorm matter in eval mode, and the gradient wrong."""
        (x, y), (xv, yv) = data(30), data()
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
        start = [p.detach().clone() for p in net.parameters()]

        def pulled(model, batch, hyper):  # weight decay alone would shrink weights before BatchNorm for ever
            distance = sum((p - p0).square().sum() for p, p0 in zip(model.parameters(), start, strict=True))
            return squared(model, batch, {}) + hyper["pull"] * distance

        step = hyper.SGD(net, pulled, rate=0.2)

        def run(method):
            return hyper.hypergradient(step, {"pull": 0.2}, on(xv, yv), batches=[(x, y)], steps=250, method=method)

        implicit = run("auto")
        assert implicit.adjoint.converged
        torch.testing.assert_close(implicit.gradients["pull"], run("bptt").gradients["pull"], rtol=1e-4, atol=0)

    def test_a_frozen_part_stays_frozen_and_modes_are_restored(self):
        (x, y), (xv, yv) = data(), data()
        net = noisy_net()
        net[1].eval()
        step = hyper.SGD(net, squared)
        found = hyper.hypergradient(step, {"decay": 0.1}, on(xv, yv), batches=[(x, y)], steps=4, method="bptt")
        assert "statistics" in found.state
        assert found.state["statistics"] == {}
        torch.testing.assert_close(found.state["buffers"]["1.running_mean"], torch.zeros(6))
        assert net.training
        assert not net[1].training
        assert net[1].track_running_stats

    def test_evaluation_is_that_of_the_module(self):
        (x, y), _ = data(), None
        net = nn.Sequential(nn.Conv1d(1, 2, 2), nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(4, 1))
        step = hyper.SGD(net, lambda model, batch, hyper: (model(x.unsqueeze(1)) - y).square().mean())
        found = hyper.hypergradient(
            step,
            {"decay": 0.1},
            lambda model, hyper: model(x.unsqueeze(1)).square().mean(),
            batches=[None],
            steps=5,
            method="bptt",
        )
        step.load(found.state)
        net.eval()
        assert net(x.unsqueeze(1)).square().mean().item() == pytest.approx(found.loss, rel=1e-12)


class TestMemory:
    @pytest.mark.parametrize(
        "method",
        [
            sg.Implicit(sg.Auto(rtol=1e-12, max_steps=20)),
            sg.Implicit(sg.NormalCG(steps=10)),
            sg.Implicit(sg.Picard(max_steps=10, rtol=0)),
            "neumann-rbp",
            sg.TBPTT(steps=3),
            "forward",
        ],
        ids=str,
    )
    def test_flat_in_the_training_steps(self, method):
        assert self.peak(method, 40) <= self.peak(method, 8) * 1.01

    def test_the_check_is_flat_too(self):
        assert self.peak("neumann-rbp", 40, check=True) <= self.peak("neumann-rbp", 8, check=True) * 1.01

    def test_the_measure_sees_what_bptt_keeps(self):
        assert self.peak("bptt", 40) > 3 * self.peak("bptt", 8)

    def peak(self, method, steps, check=None):
        torch.manual_seed(0)
        x, y = data(64, 16)
        net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
        step = hyper.SGD(net, squared, rate=0.01)

        def run():
            hyper.hypergradient(
                step,
                {"decay": 0.1, "rate": 0.01},
                on(x, y),
                batches=[(x, y)],
                steps=steps,
                method=method,
                on_failure="ignore",
                check=check,
            )

        run()
        return peak_memory(run)


class Tied(nn.Module):
    """A weight in two places, and a part under two names."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
        self.second.weight = self.first.weight
        self.again = self.out

    def forward(self, x):
        return self.again(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Counting(nn.Module):
    """Puts a new tensor in the place of a buffer, and writes another in place."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.seen = self.seen + len(x)
            self.calls.add_(1)
        return self.linear(x)


class TestModules:
    def run(self, net, method="bptt", values=None, **options):
        torch.manual_seed(1)
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(net, squared, rate=0.1, momentum=0.5)
        values = {"decay": step.per_tensor(0.1)} if values is None else values
        return hyper.hypergradient(step, values, on(xv, yv), batches=[(x, y)], steps=6, method=method, seed=2, **options)

    @pytest.mark.parametrize("method", ["bptt", "forward"])
    @pytest.mark.parametrize(
        "net",
        [
            Tied,
            lambda: nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 1)),
            lambda: nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)), nn.Tanh(), nn.Linear(3, 1)),
            lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Dropout(0.3), nn.Linear(4, 1)),
            lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None, affine=False), nn.Linear(4, 1)),
        ],
        ids=["tied", "frozen", "parametrised", "layer norm and dropout", "cumulative batch norm"],
    )
    def test_against_differences(self, net, method):
        net = net()
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        found = self.run(net, method)
        values = {"decay": torch.full_like(found.gradients["decay"], 0.1)}
        for i in range(len(values["decay"])):
            expected = difference(lambda v: self.run(net, sg.TBPTT(steps=1), v).loss, values, "decay", i)
            assert found.gradients["decay"][i].item() == pytest.approx(expected, rel=1e-5, abs=1e-9)
        for name, tensor in net.state_dict().items():
            assert torch.equal(tensor, before[name]), name  # the module itself was left alone

    def test_a_part_under_two_names_gets_its_own_tensors_back(self):
        """torch.func.functional_call leaves the given ones in a part that it meets twice."""
        net = Tied()
        weight = net.out.weight
        self.run(net)
        assert net.out.weight is weight
        assert net.again is net.out

    def test_buffers_that_the_module_replaces(self):
        net = Counting()
        found = self.run(net)
        assert found.state["buffers"] == {"seen": torch.tensor(120), "calls": torch.tensor(6)}
        assert net.seen == net.calls == 0

    def test_a_hook_sees_every_call(self):
        net, seen = nn.Linear(3, 1), []
        net.register_forward_hook(lambda *_: seen.append(net.training))
        self.run(net, check=False)
        assert seen == [True] * 6 + [False]

    def test_a_model_that_changes_between_calls(self):
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(net, squared, rate=0.1)

        def run(step):
            return hyper.hypergradient(step, {"decay": 0.1}, on(xv, yv), batches=[(x, y)], steps=3, method="bptt").loss

        first = run(step)
        with torch.no_grad():
            net[0].weight.add_(1)  # other numbers in the same tensors
        assert run(step) != first
        net[1] = nn.ReLU()  # another part of the same names
        assert run(step) == run(hyper.SGD(net, squared, rate=0.1))
        net[0] = nn.Linear(3, 4)
        assert run(step) == run(hyper.SGD(net, squared, rate=0.1))
        net.eval()  # the step keeps the modes that it was made with
        run(step)
        assert not net.training
        net.append(nn.Linear(1, 1))
        with pytest.raises(ValueError, match=r"has changed since the step was made \(3.weight, 3.bias new\)"):
            run(step)
        del net[3], net[2]
        with pytest.raises(ValueError, match=r"2.weight, 2.bias no longer there"):
            run(step)

    @pytest.mark.parametrize("method", ["bptt", "forward", sg.Implicit(sg.Neumann(steps=3))], ids=str)
    def test_the_gradient_has_the_dtype_of_the_hyperparameter(self, method):
        net = nn.Linear(3, 1)
        found = self.run(net, method, {"decay": torch.tensor([0.1, 0.1], dtype=torch.float32)}, on_failure="ignore")
        assert found.gradients["decay"].dtype is torch.float32
        assert found.state["parameters"]["weight"].dtype is torch.float64


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.widen, self.out = nn.Linear(3, 4), nn.Linear(4, 1)
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.out(self.layer(self.widen(x))[:, -1])


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.out = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x):
        return self.out(self.cells(x)[0][:, -1])


@pytest.mark.parametrize("net", [Attention, Memory])
def test_sequences_by_attention_and_by_lstm(net):
    """torch's fused attention has no second derivative, and an LSTM keeps its weights in a list of its own."""
    (x, y), (xv, yv) = [(torch.randn(6, 5, 3), torch.randn(6, 1)) for _ in range(2)]
    step = hyper.SGD(net(), squared, rate=0.1, momentum=0.5)
    values = {"decay": step.per_tensor(0.1)}  # of attention so many that forward mode takes torch.func

    def run(method, values=values):
        return hyper.hypergradient(
            step, values, on(xv, yv), batches=[(x, y)], steps=6, method=method, on_failure="ignore"
        )  # fmt: skip

    expected = difference(lambda changed: run("bptt", changed).loss, values, "decay", index=2)
    for method in ("bptt", "forward", sg.TBPTT(steps=6)):
        torch.testing.assert_close(run(method).gradients["decay"][2].item(), expected, rtol=1e-6, atol=0)


def test_sparse_gradients_are_refused():
    net = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(6, 1))
    step = hyper.SGD(net, squared, rate=0.1)
    batch = torch.randint(5, (4, 2)), torch.randn(4, 1)
    with pytest.raises(ValueError, match=r"gradient of 0\.weight is sparse.*use sparse=False"):
        hyper.hypergradient(step, {"decay": 0.1}, on(*batch), batches=[batch], steps=3, method="bptt")


class Recomputed(nn.Module):
    """A layer that is recomputed in backward, as a module or as a function of its weight."""

    def __init__(self, how):
        super().__init__()
        self.inner, self.how = nn.Linear(3, 1), how

    def forward(self, x):
        if self.how == "module":
            return checkpoint(self.inner, x, use_reentrant=False)
        if self.how == "function":
            return checkpoint(lambda x: x @ self.inner.weight.T, x, use_reentrant=False)
        return self.inner(x)


class TestActivationCheckpointing:
    """Recomputed in backward, a model would see its own parameters and not those of the training state."""

    @pytest.mark.parametrize("method", ["bptt", "auto", "forward"])
    @pytest.mark.parametrize("how", ["module", "function"])
    def test_it_is_refused(self, how, method):
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(Recomputed(how), squared, rate=0.1)
        with pytest.raises(RuntimeError, match="Turn activation checkpointing off"):
            hyper.hypergradient(step, {"decay": 0.1}, on(xv, yv), batches=[(x, y)], steps=3, method=method)

    def test_also_where_it_is_switched_on_later(self):
        (x, y), net = data(), Recomputed("not at all")
        step = hyper.SGD(net, squared, rate=0.1)
        with torch.no_grad():
            state = step(step.initial(), {}, (x, y))
            net.how = "module"
            with pytest.raises(RuntimeError, match="Turn activation checkpointing off"):
                step(state, {}, (x, y))

    def test_the_objective_may_do_it(self):
        """It is differentiated while the model has the parameters of the state."""
        (x, y), (xv, yv) = data(), data()
        net = Recomputed("not at all")
        step = hyper.SGD(net, squared, rate=0.1)

        def objective(how):
            def of(model, hyper):
                model.how = how
                value = on(xv, yv)(model, hyper)
                model.how = "not at all"
                return value

            return of

        found, expected = (
            hyper.hypergradient(step, {"decay": 0.1}, objective(how), batches=[(x, y)], steps=5, method="bptt").gradients
            for how in ("module", "not at all")
        )
        torch.testing.assert_close(found, expected)


def test_evaluate_refuses_a_generator():
    step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.1)
    with pytest.raises(TypeError, match="return what it adds up to"):
        step.evaluate(lambda model, hyper: (model(x).sum() for x in torch.randn(2, 4, 3)), step.initial(), {})
