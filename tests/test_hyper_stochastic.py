"""Hypergradients from mini-batches: unbiased, and with the right variance."""

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
        one = hyper.hypergradient(step, {"decay": 0.2}, objective, batches=[full], steps=3, on_failure="ignore")
        assert one.samples == 1
        assert one.variance is None
        whole = hyper.hypergradient(
            step, {"decay": 0.2}, objective, batches=batches, steps=3, last=hyper.Full(full), on_failure="ignore"
        )
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
