"""Hypergradients from mini-batches: unbiased, and with the right variance."""

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

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
        options = {"steps": 3, "method": "auto", "on_failure": "ignore"}
        many = hyper.hypergradient(step, {"decay": 0.2}, objective, batches=batches, **options)
        assert many.samples == 8
        assert many.variance is not None
        one = hyper.hypergradient(step, {"decay": 0.2}, objective, batches=[full], **options)
        assert one.samples == 1
        assert one.variance is None
        whole = hyper.hypergradient(step, {"decay": 0.2}, objective, batches=batches, last=hyper.Full(full), **options)
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
        for method in (None, "auto"):
            with pytest.raises(ValueError, match=r"Neumann\(steps=K\)"):
                hyper.hypergradient(step, {"decay": 0.2}, objective, batches=batches, steps=3, last=hyper.Fresh(2), method=method)


class TestLists:
    """A list is known to repeat: no batch of it counts twice."""

    def problem(self):
        batches = [data(4) for _ in range(3)]
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.05)

        def run(last, batches=batches):
            objective = on(torch.eye(3), torch.ones(3, 1))
            return hyper.hypergradient(
                step, {"decay": 0.3}, objective, batches=batches, steps=50, last=last, on_failure="ignore", method="auto"
            )

        return run, batches

    def test_by_default_each_batch_counts_once(self):
        run, batches = self.problem()
        found = run(None)
        each = torch.stack([run(hyper.Full(batch)).gradients["decay"] for batch in batches])
        assert found.samples == 3
        torch.testing.assert_close(found.gradients["decay"], each.mean(), rtol=1e-12, atol=0)
        torch.testing.assert_close(found.variance["decay"], each.var() / 3, rtol=1e-9, atol=0)
        assert run(None, [data(4) for _ in range(9)]).samples == 8

    def test_more_than_there_are_is_refused(self):
        run, _ = self.problem()
        assert run(hyper.Average(3)).samples == 3
        with pytest.raises(ValueError, match=r"a list of 3: some would count twice.*at most Average\(3\)"):
            run(hyper.Average(4))


class TestFunctions:
    """A function that has a batch for each training step and no more."""

    def run(self, made, **options):
        batches = [data(4) for _ in range(made)]
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.05)
        objective = on(torch.eye(3), torch.ones(3, 1))
        given = {"steps": 6, "on_failure": "ignore", "method": "auto", **options}
        return hyper.hypergradient(step, {"decay": 0.3}, objective, batches=lambda t: batches[t], **given)

    @pytest.mark.parametrize(
        "options", [{}, {"last": hyper.Fresh(2), "method": sg.Implicit(sg.Neumann(steps=3))}, {"first": 2, "steps": 4}], ids=repr
    )
    def test_reading_past_the_last_step_is_said(self, options):
        with pytest.raises(ValueError, match=r"batches\(6\) failed \(IndexError.* to 5, but.*read on.*last=Last\(\)") as caught:
            self.run(6, **options)
        assert isinstance(caught.value.__cause__, IndexError)

    def test_what_the_advice_says_works(self):
        for options in ({"last": hyper.Last()}, {"last": hyper.Full(data(4))}, {"method": "bptt"}):
            assert self.run(6, **options).samples == 1
        assert self.run(13).samples == 8

    @pytest.mark.parametrize("memory", [None, 1], ids=["fits", "does not"])
    def test_by_default_nothing_is_read_past_the_end(self, memory):
        assert self.run(6, method=None, memory=memory).samples == 1

    def test_an_error_during_training_stays_as_it_is(self):
        with pytest.raises(IndexError, match="out of range"):
            self.run(5)


def on_the_loader(dataset, generator):
    return DataLoader(dataset, batch_size=2, shuffle=True, generator=generator)


def on_the_sampler(dataset, generator):
    weights = torch.arange(1, len(dataset) + 1)
    return DataLoader(dataset, batch_size=2, sampler=WeightedRandomSampler(weights, len(dataset), generator=generator))


def inside_a_batch_sampler(dataset, generator):
    sampler = BatchSampler(RandomSampler(dataset, generator=generator), 2, drop_last=False)
    return DataLoader(dataset, batch_sampler=sampler)


def of_whole_batches(dataset, generator):
    sampler = BatchSampler(RandomSampler(dataset, generator=generator), 2, drop_last=False)
    return DataLoader(dataset, sampler=sampler, batch_size=None)


@pytest.mark.parametrize("make", [on_the_loader, on_the_sampler, inside_a_batch_sampler, of_whole_batches])
class TestGenerators:
    """A loader with a generator of its own follows torch's random state like any other."""

    def problem(self, make, **options):
        generator = torch.Generator().manual_seed(3)
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.2)
        objective = on(torch.eye(3), torch.ones(3, 1))
        loader = make(TensorDataset(*data(12)), generator)

        def run(seed, steps=9):  # more than an epoch
            return hyper.hypergradient(
                step, {"rate": 0.2}, objective, batches=loader, steps=steps, method="bptt", seed=seed, **options
            )

        return run

    def test_the_seed_fixes_the_order(self, make):
        run = self.problem(make)
        first, again, other = run(0), run(0), run(1)
        assert first.loss == again.loss
        assert torch.equal(first.gradients["rate"], again.gradients["rate"])
        assert first.loss != other.loss

    def test_without_a_seed_the_order_is_torchs(self, make):
        run = self.problem(make)
        torch.manual_seed(5)
        first, second = run(None), run(None)
        torch.manual_seed(5)
        assert run(None).loss == first.loss
        assert first.loss != second.loss

    @pytest.mark.parametrize("seed", [0, None])
    def test_a_check_sees_the_same_order(self, make, seed):
        assert self.problem(make, check=True)(seed).agreement == pytest.approx(1, rel=1e-9)


def test_torchs_own_generator_as_that_of_a_loader_is_left_alone():
    def drawn(generator):
        torch.manual_seed(7)
        loader = DataLoader(TensorDataset(torch.arange(12)), batch_size=12, shuffle=True, generator=generator)
        stream = hyper.batches.Batches.of(loader).stream()
        next(stream)
        return torch.initial_seed()

    assert drawn(torch.default_generator) == 7
