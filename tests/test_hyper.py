"""Hypergradients: against closed forms, finite differences and each other, in float64."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import steadygrad as sg
from steadygrad import hyper
from trainings import data, difference, in_double, noisy_net, on, small_net, squared


@pytest.fixture(autouse=True)
def double():
    with in_double():
        yield


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

    def test_adamw_keeps_its_own_and_calls_nothing_degenerate_that_is_not(self):
        """Its squares, nudged by themselves, make another world, beside which anything looked degenerate."""
        (x, y), (xv, yv) = data(), data()

        def loss(model, batch, hyper):
            return (model(x) - hyper["scale"] * y).square().mean()

        step = hyper.Adam(nn.Linear(3, 1), loss, rate=0.02, decoupled=True)
        values = {"decay": 0.3, "scale": 1.0}
        found, exact = (
            hyper.hypergradient(step, values, on(xv, yv), batches=[None], steps=400, method=method, on_failure="ignore")
            for method in ("auto", "bptt")
        )
        assert found.degenerate == {}
        for name in values:
            torch.testing.assert_close(found.gradients[name], exact.gradients[name], rtol=0.1, atol=0)

    def test_adam_takes_the_jacobian_of_descent(self):
        (x, y), (xv, yv) = data(), data()
        step = hyper.Adam(nn.Linear(3, 1, bias=False), squared, rate=0.02)
        found = hyper.hypergradient(step, {"decay": 0.3}, on(xv, yv), batches=[(x, y)], steps=1200, method="auto")
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

    def test_a_gradient_without_its_graph_is_found_out(self):
        """autograd then sees J = I where the step has I − αH: every method would be wrong, and quietly."""
        start, objective, batches = self.problem()

        def hidden(state, hyper, batch):
            x, y = batch
            with torch.enable_grad():
                w = state["w"].detach().requires_grad_()
                (g,) = torch.autograd.grad(functional.softplus(-y * (x @ w)).mean(), w)
            return {"w": state["w"] - hyper["rate"] * (g + hyper["decay"] * state["w"]), "count": state["count"] + 1}

        def run(step, rate, **options):
            return hyper.hypergradient(
                step, {"decay": 0.2, "rate": rate}, objective, batches=batches, steps=3, state=start, method="bptt", **options
            )

        for rate in (1.0, 1e-3):
            with pytest.warns(sg.SteadyStateWarning, match=r"derivative of a training step.*create_graph=torch.is_grad_enabled"):
                run(hidden, rate)
            run(hidden, rate, on_failure="raise", check=False)
            run(descend, rate, on_failure="raise")

    def test_a_start_is_left_alone(self):
        start = {"w": torch.ones(3), "count": torch.tensor(0)}

        def in_place(state, hyper, batch):
            state["count"].add_(1)
            return {"w": state["w"] * hyper["a"], "count": state["count"]}

        def twice(state, hyper):
            return state["w"].sum()

        first, second = (
            hyper.hypergradient(in_place, {"a": 0.5}, twice, batches=[None], steps=3, state=start, method="bptt")
            for _ in range(2)
        )
        assert first.state["count"] == second.state["count"] == 3
        assert start["count"] == 0

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


class TestLossHyperparameters:
    """Logistic regression with everything in the loss that one may want to tune: all methods against differences."""

    def problem(self):
        x, y, xv, yv = torch.randn(16, 3), torch.randint(3, (16,)), torch.randn(20, 3), torch.randint(3, (20,))
        noise = torch.randn(16, 3)

        def loss(model, batch, hyper):
            out = model(x + hyper["augmentation"] * noise)
            target = (1 - hyper["smoothing"]) * functional.one_hot(y, 3) + hyper["smoothing"] / 3
            each = -(target * out.log_softmax(1)).sum(1)
            return hyper["weight"] * (hyper["examples"] * each).mean()

        step = hyper.SGD(nn.Linear(3, 3), loss, rate=1.0, momentum=0.3)
        values = {
            "decay": step.per_tensor(0.2),
            "augmentation": torch.tensor(0.3),
            "smoothing": torch.tensor(0.1),
            "weight": torch.tensor(1.3),
            "examples": torch.rand(16) + 0.5,
        }

        def run(values, method):
            return hyper.hypergradient(
                step, values, lambda model, hyper: functional.cross_entropy(model(xv), yv), batches=[None], steps=120, method=method,
                on_failure="raise",
            )  # fmt: skip

        return run, values

    def test_all_methods_against_differences(self):
        run, values = self.problem()
        methods = ["bptt", "auto", "cg-rbp", "dense", sg.Implicit(sg.Neumann(rtol=1e-10, max_steps=2000))]
        found = [run(values, method).gradients for method in methods]
        for name in values:
            expected = difference(lambda v: run(v, sg.TBPTT(steps=1)).loss, values, name, -1)
            for gradients in found:
                assert gradients[name].reshape(-1)[-1].item() == pytest.approx(expected, rel=1e-5)
                torch.testing.assert_close(gradients[name], found[0][name], rtol=1e-6, atol=1e-12)
