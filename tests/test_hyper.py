"""Hypergradients: against closed forms, finite differences and each other, in float64."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import steadygrad as sg
from steadygrad import hyper
from steadygrad.measure import peak_memory

DOUBLE = torch.float64


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(DOUBLE)
    yield
    torch.set_default_dtype(torch.float32)


def data(n=20, features=3):
    return torch.randn(n, features), torch.randn(n, 1)


def squared(model, batch, hyper):
    x, y = batch
    return hyper.get("weight", 1.0) * (model(x) - y).square().mean()


def small_net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def noisy_net():
    return nn.Sequential(nn.Linear(3, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 1))


def on(x, y):
    return lambda model, hyper: (model(x) - y).square().mean()


def difference(loss, hyper_values, name, index=None, eps=1e-6):
    """A central difference of the loss in one hyperparameter."""

    def at(sign):
        changed = {key: torch.as_tensor(value, dtype=DOUBLE).clone() for key, value in hyper_values.items()}
        changed[name].view(-1)[index or 0] += sign * eps
        return loss(changed)

    return (at(1) - at(-1)) / (2 * eps)


class TestRidge:
    """(XᵀX/n + λ/2·I) w = Xᵀy/n: the end of training in closed form."""

    def closed_form(self, x, y, xv, yv, decay):
        decay = decay.clone().requires_grad_()
        a = 2 * x.T @ x / len(x) + decay * torch.eye(x.shape[1])
        w = torch.linalg.solve(a, 2 * x.T @ y / len(x))
        (gradient,) = torch.autograd.grad((xv @ w - yv).square().mean(), decay)
        return gradient

    @pytest.mark.parametrize(
        "method",
        ["auto", "cg-rbp", "gmres", sg.Implicit(sg.Neumann(rtol=1e-12, max_steps=5000)), "bptt", "forward", "dense"],
        ids=str,
    )
    @pytest.mark.parametrize("momentum", [0.0, 0.8])
    def test_weight_decay(self, method, momentum):
        (x, y), (xv, yv) = data(), data()
        decay = torch.tensor(0.3)
        step = hyper.SGD(nn.Linear(3, 1, bias=False), squared, rate=0.3, momentum=momentum)
        found = hyper.hypergradient(step, {"decay": decay}, on(xv, yv), batches=[(x, y)], steps=250, method=method)
        expected = self.closed_form(x, y, xv, yv, decay)
        torch.testing.assert_close(found.gradients["decay"], expected, rtol=1e-7, atol=0)
        assert found.degenerate == {}
        if found.adjoints:
            assert found.adjoint.converged
            assert found.residual < 1e-8

    def test_adam_takes_the_jacobian_of_descent(self):
        (x, y), (xv, yv) = data(), data()
        step = hyper.Adam(nn.Linear(3, 1, bias=False), squared, rate=0.02)
        found = hyper.hypergradient(step, {"decay": 0.3}, on(xv, yv), batches=[(x, y)], steps=1200)
        expected = self.closed_form(x, y, xv, yv, torch.tensor(0.3))
        torch.testing.assert_close(found.gradients["decay"], expected, rtol=1e-3, atol=0)
        assert found.adjoint.converged


class TestExact:
    """BPTT and forward mode give the derivative of the program as it runs."""

    @pytest.mark.parametrize("net", [small_net, noisy_net])
    @pytest.mark.parametrize(
        ("kind", "settings"),
        [
            (hyper.SGD, {"rate": 0.2, "momentum": 0.5, "decay": 0.05}),
            (hyper.Adam, {"rate": 0.02, "beta1": 0.8, "beta2": 0.99, "decay": 0.05}),
            (hyper.Adam, {"rate": 0.02, "decay": 0.05, "decoupled": True}),
        ],
        ids=["sgd", "adam", "adamw"],
    )
    def test_forward_is_bptt_is_the_difference(self, net, kind, settings):
        (x, y), (xv, yv) = data(), data()
        batches = [(x[:10], y[:10]), (x[10:], y[10:])]
        step = kind(net(), squared, **settings)
        names = [name for name in settings if name != "decoupled"]
        values = {**{name: step.per_tensor(settings[name]) for name in names}, "weight": torch.tensor(1.3)}

        def run(values, method):
            return hyper.hypergradient(step, values, on(xv, yv), batches=batches, steps=30, method=method, seed=1)

        bptt, forward = run(values, "bptt"), run(values, "forward")
        assert forward.loss == pytest.approx(bptt.loss, rel=1e-12)
        for name in values:
            torch.testing.assert_close(forward.gradients[name], bptt.gradients[name], rtol=1e-10, atol=1e-12)
            expected = difference(lambda v: run(v, sg.TBPTT(steps=1)).loss, values, name, index=-1 if name != "weight" else 0)
            assert bptt.gradients[name].reshape(-1)[-1].item() == pytest.approx(expected, rel=1e-5, abs=1e-8)

    def test_tbptt_of_all_steps_is_bptt(self):
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(small_net(), squared)
        runs = [
            hyper.hypergradient(step, {"rate": 0.1}, on(xv, yv), batches=[(x, y)], steps=12, method=method)
            for method in ("bptt", sg.TBPTT(steps=12), sg.TBPTT(steps=100))
        ]
        assert runs[0].gradients["rate"] == runs[1].gradients["rate"] == runs[2].gradients["rate"]

    def test_tbptt_equals_neumann_with_one_term_less_at_a_steady_state(self):
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.3)

        def run(method):
            return hyper.hypergradient(step, {"decay": 0.3}, on(xv, yv), batches=[(x, y)], steps=500, method=method).gradients[
                "decay"
            ]

        torch.testing.assert_close(run(sg.TBPTT(steps=4)), run(sg.Implicit(sg.Neumann(steps=3))), rtol=1e-10, atol=0)

    def test_the_steps_are_those_of_torch(self):
        x, y = data()
        pairs = [
            (
                hyper.SGD,
                {"rate": 0.4, "momentum": 0.6, "decay": 0.01},
                torch.optim.SGD,
                {"lr": 0.4 * 0.4, "momentum": 0.6, "weight_decay": 0.01},
            ),
            (hyper.Adam, {"rate": 0.01, "decay": 0.01}, torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01}),
            (hyper.Adam, {"rate": 0.01, "decay": 0.1, "decoupled": True}, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
        ]
        for kind, settings, theirs, options in pairs:
            net = noisy_net()
            step = kind(net, squared, **settings)
            state = step.initial()
            torch.manual_seed(3)
            with torch.no_grad():
                for _ in range(8):
                    state = step(state, {}, (x, y))
            assert net[1].num_batches_tracked == 0  # the module itself was left alone
            torch.manual_seed(3)
            optimiser = theirs(net.parameters(), **options)
            for _ in range(8):
                optimiser.zero_grad()
                squared(net, (x, y), {}).backward()
                optimiser.step()
            for name, p in net.named_parameters():
                torch.testing.assert_close(state["parameters"][name], p.detach(), rtol=1e-9, atol=1e-12)
            after = net.state_dict()
            step.load(state)
            for name, tensor in net.state_dict().items():
                torch.testing.assert_close(tensor, after[name], rtol=1e-9, atol=1e-12)
            assert state["buffers"]["1.num_batches_tracked"] == 8


def descend(state, hyper, batch):
    """A step of one's own: logistic regression by hand, with the gradient from autograd.grad."""
    x, y = batch
    w = state["w"]
    with torch.enable_grad():
        w = w if w.requires_grad else w.detach().requires_grad_()
        loss = functional.softplus(-y * (x @ w)).mean() + 0.5 * hyper["decay"] * w.square().sum()
        (g,) = torch.autograd.grad(loss, w, create_graph=True)
    return {"w": w - hyper["rate"] * g, "count": state["count"] + 1}


class TestOwnStep:
    def problem(self):
        x, y = torch.randn(30, 4), torch.randn(30).sign()
        xv, yv = torch.randn(30, 4), torch.randn(30).sign()
        start = {"w": torch.zeros(4), "count": torch.tensor(0)}

        def objective(state, hyper):
            return functional.softplus(-yv * (xv @ state["w"])).mean()

        return start, objective, [(x, y)]

    def test_every_method_agrees_on_the_decay(self):
        start, objective, batches = self.problem()
        values = {"decay": torch.tensor(0.2), "rate": torch.tensor(1.0)}

        def run(method):
            return hyper.hypergradient(
                descend, values, objective, batches=batches, steps=150, state=start, method=method, on_failure="ignore"
            )

        reference = run("bptt")
        assert reference.state["count"] == 150
        forward = run("forward")
        for name in values:
            torch.testing.assert_close(forward.gradients[name], reference.gradients[name], rtol=1e-9, atol=1e-15)
        for method in ("auto", "cg-rbp", "rbp", sg.Implicit(sg.Neumann(rtol=1e-12))):
            torch.testing.assert_close(run(method).gradients["decay"], reference.gradients["decay"], rtol=1e-4, atol=0)

    def test_needs_a_start(self):
        _, objective, batches = self.problem()
        with pytest.raises(TypeError, match="needs state="):
            hyper.hypergradient(descend, {"decay": 0.1, "rate": 0.1}, objective, batches=batches, steps=3)

    def test_another_structure_is_refused(self):
        start, objective, batches = self.problem()
        with pytest.raises(TypeError, match="must keep the structure"):
            hyper.hypergradient(
                lambda state, hyper, batch: state["w"], {"decay": 0.1}, objective, batches=batches, steps=3, state=start
            )


class TestDegenerate:
    def run(self, method="auto", on_failure="warn", steps=500, **values):
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.3, momentum=0.3)
        return hyper.hypergradient(step, values, on(xv, yv), batches=[(x, y)], steps=steps, method=method, on_failure=on_failure)

    def test_a_learning_rate_is_named_with_what_to_use(self):
        with pytest.warns(sg.SteadyStateWarning, match=r"hyper\['rate'\] does not move the steady state.*\"forward\""):
            found = self.run(rate=0.3, decay=0.1)
        assert list(found.degenerate) == ["rate"]
        with pytest.raises(sg.SteadyStateError, match=r"hyper\['momentum'\].*forward"):
            self.run(on_failure="raise", momentum=0.3)

    def test_forward_mode_has_no_such_word(self):
        found = self.run("forward", rate=0.3, steps=10)
        assert found.degenerate == {}
        assert found.gradients["rate"] != 0

    def test_before_convergence_a_rate_is_not_degenerate(self):
        assert self.run(rate=0.3, steps=5, on_failure="raise").degenerate == {}

    @pytest.mark.parametrize("method", ["auto", "bptt", "forward"])
    def test_a_name_that_nothing_reads(self, method):
        with pytest.raises(sg.SteadyStateError, match=r"hyper\['deacy'\] has no gradient"):
            self.run(method, on_failure="raise", steps=10, deacy=0.1)

    @pytest.mark.parametrize("method", ["auto", "bptt", "forward"])
    def test_what_only_the_objective_uses_has_its_direct_gradient(self, method):
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.3)

        def objective(model, hyper):
            return hyper["scale"] * (model(xv) - yv).square().mean()

        found = hyper.hypergradient(
            step, {"scale": 2.0}, objective, batches=[(x, y)], steps=20, method=method, on_failure="raise"
        )
        assert found.gradients["scale"].item() == pytest.approx(found.loss / 2)

    def test_the_rate_of_adam_is_named(self):
        (x, y), (xv, yv) = data(), data()
        step = hyper.Adam(nn.Linear(3, 1), squared)
        with pytest.warns(sg.SteadyStateWarning, match=r"rate of Adam.*forward"):
            found = hyper.hypergradient(step, {"rate": 0.1, "decay": 0.1}, on(xv, yv), batches=[(x, y)], steps=300)
        assert list(found.degenerate) == ["rate"]


class TestStochastic:
    """A linear model: J of a batch is linear in the batch, so the expectation of the fresh series is known."""

    def problem(self):
        (x, y), (xv, yv) = data(40), data()
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.15)
        generator = torch.Generator().manual_seed(5)

        def batches(t):
            rows = torch.randint(40, (10,), generator=generator)
            return x[rows], y[rows]

        return step, (x, y), on(xv, yv), batches

    def test_fresh_batches_are_unbiased_and_their_variance_is_right(self):
        step, full, objective, batches = self.problem()
        method = sg.Implicit(sg.Neumann(steps=6))
        state = step.initial()
        values = {"decay": step.per_tensor(0.2)}
        exact = hyper.hypergradient(step, values, objective, batches=[full], steps=1, state=state, method=method)
        found = hyper.hypergradient(
            step,
            values,
            objective,
            batches=batches,
            steps=1,
            state=state,
            method=method,
            last=hyper.Fresh(100),
            on_failure="ignore",
        )
        assert found.samples == 100
        z = (found.gradients["decay"] - exact.gradients["decay"]) / found.variance["decay"].sqrt()
        assert z.abs().max() < 4
        assert z.abs().max() > 1e-3  # a variance that is far too large would hide anything
        assert found.variance["decay"].min() > 0

    def test_average_reports_the_variance_of_its_mean(self):
        step, _, objective, batches = self.problem()

        def run(count, first):
            return hyper.hypergradient(
                step, {"decay": 0.2}, objective, batches=batches, steps=1, first=first,
                method=sg.Implicit(sg.Neumann(steps=6)), last=hyper.Average(count), on_failure="ignore",
            )  # fmt: skip

        runs = [run(4, i) for i in range(40)]
        means = torch.stack([found.gradients["decay"] for found in runs])
        claimed = torch.stack([found.variance["decay"] for found in runs]).mean()
        assert 0.5 < (means.var() / claimed).item() < 2
        assert len(runs[0].adjoints) == 4

    def test_several_batches_are_averaged_by_default_and_one_is_not(self):
        step, full, objective, batches = self.problem()
        many = hyper.hypergradient(step, {"decay": 0.2}, objective, batches=batches, steps=3, on_failure="ignore")
        assert many.samples == 8
        assert many.variance is not None
        one = hyper.hypergradient(step, {"decay": 0.2}, objective, batches=[full], steps=3)
        assert one.samples == 1
        assert one.variance is None
        whole = hyper.hypergradient(step, {"decay": 0.2}, objective, batches=batches, steps=3, last=hyper.Full(full))
        assert whole.variance is None

    def test_a_series_that_grows_is_reported(self):
        (x, y), (xv, yv) = data(40), data()
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=3.0)
        with pytest.warns(sg.SteadyStateWarning, match="series grew"):
            hyper.hypergradient(
                step, {"decay": 0.2}, on(xv, yv), batches=[(x, y)], steps=1,
                method=sg.Implicit(sg.Neumann(steps=12)), last=hyper.Fresh(1),
            )  # fmt: skip

    def test_fresh_needs_a_series_of_given_length(self):
        step, _, objective, batches = self.problem()
        with pytest.raises(ValueError, match=r"Neumann\(steps=K\)"):
            hyper.hypergradient(step, {"decay": 0.2}, objective, batches=batches, steps=3, last=hyper.Fresh(2))


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

    def test_the_measure_sees_what_bptt_keeps(self):
        assert self.peak("bptt", 40) > 3 * self.peak("bptt", 8)

    def peak(self, method, steps):
        torch.manual_seed(0)
        x, y = data(64, 16)
        net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
        step = hyper.SGD(net, squared, rate=0.01)

        def run():
            hyper.hypergradient(
                step, {"decay": 0.1, "rate": 0.01}, on(x, y), batches=[(x, y)], steps=steps, method=method, on_failure="ignore"
            )

        run()
        return peak_memory(run)


class TestBadInput:
    def call(self, **changes):
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.1)
        options = {"step": step, "hyper": {"decay": 0.1}, "objective": on(xv, yv), "batches": [(x, y)], "steps": 3, **changes}
        step, values, objective = options.pop("step"), options.pop("hyper"), options.pop("objective")
        return hyper.hypergradient(step, values, objective, **options)

    @pytest.mark.parametrize(
        ("changes", "error", "words"),
        [
            ({"hyper": {}}, TypeError, "must be a dict"),
            ({"hyper": {"decay": math.nan}}, ValueError, "not finite"),
            ({"hyper": {"decay": torch.tensor(1)}}, TypeError, "floating point"),
            ({"hyper": {"rate": torch.ones(3)}}, ValueError, "one for each of the 2 parameter tensors"),
            ({"steps": 0}, ValueError, "steps must be at least 1"),
            ({"batches": (torch.ones(2, 3), torch.ones(2, 1))}, TypeError, "looks like one batch"),
            ({"batches": iter([1])}, TypeError, "read once"),
            ({"batches": []}, ValueError, "empty"),
            ({"method": "forwrad"}, ValueError, "Did you mean 'forward'"),
            ({"method": "artbp"}, ValueError, "no hypergradients|not available"),
            ({"method": "bptt", "last": hyper.Average(2)}, ValueError, "for implicit methods"),
            ({"last": 3}, TypeError, "last must be"),
            ({"objective": lambda model, hyper: 1.0}, TypeError, "one number as a tensor"),
            ({"objective": lambda model, hyper: model(torch.ones(2, 3))}, TypeError, "Take a mean"),
            ({"objective": lambda model, hyper: model(torch.ones(2, 3)).detach().mean()}, sg.SteadyStateError, "detach"),
            ({"on_failure": "shout"}, ValueError, "on_failure"),
        ],
    )
    def test_says_what_to_do(self, changes, error, words):
        with pytest.raises(error, match=words):
            self.call(**changes)

    def test_a_loss_without_a_graph(self):
        step = hyper.SGD(nn.Linear(3, 1), lambda model, batch, hyper: model(batch[0]).detach().mean())
        with pytest.raises(ValueError, match="does not depend on the parameters"):
            self.call(step=step)

    def test_a_loss_that_is_no_scalar(self):
        step = hyper.SGD(nn.Linear(3, 1), lambda model, batch, hyper: model(batch[0]))
        with pytest.raises(TypeError, match="Take a mean"):
            self.call(step=step)

    def test_training_that_explodes(self):
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=1e6)
        with pytest.raises(hyper.NonfiniteError, match="left the finite numbers"):
            self.call(step=step, steps=200)

    def test_a_model_without_parameters(self):
        with pytest.raises(ValueError, match="nothing to train"):
            hyper.SGD(nn.Tanh(), squared)
        with pytest.raises(TypeError, match="Module"):
            hyper.SGD(lambda x: x, squared)
