"""What a hypergradient says about itself: degenerate parameters, training that is not over, an exact check."""

import warnings

import pytest
import torch
from torch import nn

import steadygrad as sg
from steadygrad import hyper
from trainings import data, in_double, on, squared


@pytest.fixture(autouse=True)
def double():
    with in_double():
        yield


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
        assert self.run(rate=0.3, steps=5, on_failure="ignore").degenerate == {}

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
            found = hyper.hypergradient(step, {"rate": 0.1, "decay": 0.1}, on(xv, yv), batches=[(x, y)], steps=300, method="auto")
        assert list(found.degenerate) == ["rate"]


class TestRemaining:
    """F is affine and the objective linear: what is left of training is known exactly."""

    def run(self, steps, method="dense", momentum=0.5, on_failure="ignore", check=False):
        torch.manual_seed(0)
        (x, y), (xv, _) = data(), data()
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.2, momentum=momentum)
        found = hyper.hypergradient(
            step, {"decay": step.per_tensor(0.2)}, lambda model, hyper: 1 + model(xv).mean(),
            batches=[(x, y)], steps=steps, method=method, on_failure=on_failure, check=check,
        )  # fmt: skip
        return found

    @pytest.mark.parametrize("method", ["dense", "auto"])
    def test_is_what_training_will_still_change(self, method):
        end = self.run(300, method)
        early = self.run(7, method)
        assert early.remaining == pytest.approx(end.loss - early.loss, rel=1e-6)
        assert abs(early.remaining) > 1e-3
        assert abs(end.remaining) < 1e-12

    def test_of_a_series_is_what_as_many_steps_change(self):
        found = self.run(7, sg.Implicit(sg.Neumann(steps=5)))
        assert found.remaining == pytest.approx(self.run(12).loss - found.loss, rel=1e-9)

    def test_is_reported_where_a_steady_state_is_claimed(self):
        with pytest.warns(sg.SteadyStateWarning, match=r"training is not over.*check=True"):
            self.run(3, "auto", on_failure="warn")
        with pytest.raises(sg.SteadyStateError, match="training is not over"):
            self.run(3, "dense", on_failure="raise")
        self.run(3, sg.Implicit(sg.NormalCG(steps=40)), on_failure="raise")  # cut on purpose
        self.run(300, "auto", on_failure="raise")

    def test_unrolled_methods_have_none(self):
        assert self.run(3, "bptt", on_failure="raise").remaining is None
        assert self.run(3, "forward", on_failure="raise").remaining is None


class TestAgreement:
    """The exact derivative along a hypergradient, from one more training."""

    def run(self, method, steps, seed=None, on_failure="ignore", net=None):
        torch.manual_seed(0)
        (x, y), (xv, yv) = data(), data()
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 1)) if net is None else net
        step = hyper.SGD(net, squared, rate=0.2, momentum=0.5)

        def objective(model, hyper):
            return on(xv, yv)(model, hyper) + hyper["direct"].square()

        return hyper.hypergradient(
            step, {"decay": step.per_tensor(0.2), "direct": 0.002}, objective, batches=[(x, y)], steps=steps,
            method=method, seed=seed, on_failure=on_failure, check=True,
        )  # fmt: skip

    @pytest.mark.parametrize("seed", [None, 3])
    def test_is_the_projection_of_the_true_gradient(self, seed):
        g = self.run(sg.TBPTT(steps=2), 12, seed)
        true = self.run("bptt", 12, seed)
        top = sum((g.gradients[name] * true.gradients[name]).sum() for name in g.gradients)
        bottom = sum(g.gradients[name].square().sum() for name in g.gradients)
        assert g.agreement == pytest.approx((top / bottom).item(), rel=1e-9)
        assert abs(g.agreement - 1) > 0.01
        assert true.agreement == pytest.approx(1, rel=1e-9)

    def test_the_check_changes_nothing_else(self):
        """The draws of dropout after the call are the same, with and without."""
        self.run("bptt", 5)
        after = torch.rand(3)
        torch.manual_seed(0)
        (x, y), (xv, yv) = data(), data()
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 1))
        hyper.hypergradient(hyper.SGD(net, squared), {"decay": 0.2}, on(xv, yv), batches=[(x, y)], steps=5, method="bptt")
        assert torch.equal(after, torch.rand(3))

    def test_a_wrong_one_is_reported_and_a_right_one_is_not(self):
        linear = nn.Linear(3, 1)
        with pytest.raises(sg.SteadyStateError, match=r"wrong size: the exact derivative along it is .* times what it says"):
            self.run(sg.TBPTT(steps=1), 50, on_failure="raise", net=linear)
        right = self.run("auto", 100, on_failure="raise", net=linear)
        assert right.agreement == pytest.approx(1, rel=1e-6)


class TestSecondDerivative:
    """torch's weight_norm has a wrong one, spectral_norm hides its power iteration: a hypergradient through them is wrong."""

    def run(self, part, function=hyper.hypergradient, **options):
        (x, y), (xv, yv) = data(), data()
        net = nn.Sequential(part(nn.Linear(3, 4)), nn.Tanh(), nn.Dropout(0.3), nn.BatchNorm1d(4), nn.Linear(4, 1))
        step = hyper.Adam(net, squared, rate=0.01)
        return function(
            step, {"decay": 0.1}, on(xv, yv), batches=[(x, y)], steps=4, method="bptt", seed=1, on_failure="raise", **options
        )

    @pytest.mark.parametrize("part", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
    def test_is_compared_with_differences(self, part):
        with pytest.raises(sg.SteadyStateError, match="no right second derivative"):
            self.run(part, check=True)
        with pytest.raises(sg.SteadyStateError, match="no right second derivative"):
            self.run(part, hyper.tune, progress=False)

    def test_a_right_one_passes(self):
        assert self.run(lambda part: part, check=True).agreement == pytest.approx(1, rel=1e-9)
        assert len(self.run(lambda part: part, hyper.tune, progress=False, meta_steps=2).history) == 2


@pytest.mark.parametrize(("rtol", "said"), [(8e-3, True), (1e-7, False)])
def test_a_hypergradient_that_is_worse_than_its_adjoint_is_reported(rtol, said):
    """c·z is a small part of ‖c‖·‖z‖, so that a z right to 0.4 % leaves it far off."""
    generator = torch.Generator().manual_seed(3)
    A, b, c = (torch.randn(*shape, generator=generator) for shape in ((60, 60), (60,), (60,)))
    A = 0.9 * A / torch.linalg.eigvals(A).abs().max()
    z = torch.linalg.solve(torch.eye(60) - A.T, b)
    z = z / z.norm()
    c = c - (c @ z) * z
    c = c / c.norm() + 0.005 * z

    def found(method):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimate = hyper.hypergradient(
                lambda h, values, batch: A @ h + 1 + values["w"] * c,
                {"w": torch.tensor(0.3)},
                lambda h, values: h @ b,
                batches=[None],
                steps=500,
                state=torch.zeros(60),
                method=method,
            )
        return estimate.gradients["w"], [str(warning.message) for warning in caught]

    (exact, _), (given, words) = found("dense"), found(sg.Implicit(sg.GMRES(rtol=rtol)))
    assert bool((given - exact).abs() > 0.01 * exact.abs()) is said
    assert any("a hypergradient is not" in text for text in words) is said
