"""The outer loop: it finds the minimum, survives NaN, shows itself, and refuses bad input."""

import importlib.util
import io
import math
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import steadygrad as sg
from steadygrad import hyper
from steadygrad.hyper.bar import Bar
from tunings import ridge, tune


class TestLoop:
    @pytest.mark.parametrize("method", ["auto", "forward", "bptt"])
    def test_finds_the_minimum(self, method):
        found = tune(method=method, meta_steps=40, steps=15)
        assert found.hyper["decay"].item() == pytest.approx(2, rel=0.02)
        assert found.loss == min(entry.validation for entry in found.history)
        assert found.history[found.meta_step - 1].hyper["decay"] == found.hyper["decay"].item()
        assert found.stopped == "all meta steps done"
        assert [entry.meta_step for entry in found.history] == list(range(1, 41))

    def test_any_optimiser_and_schedule(self):
        found = tune(
            outer=lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.5),
            schedule=lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [6], gamma=0.0),
        )
        tried = [entry.hyper["decay"] for entry in found.history]
        assert len(set(tried[:7])) == 7
        assert len(set(tried[7:])) == 1  # a rate of zero moves nothing

    def test_a_schedule_that_watches_the_loss(self):
        def plateau(outer):
            return torch.optim.lr_scheduler.ReduceLROnPlateau(outer, patience=0, factor=0.0, min_lr=0.0)

        found = tune(schedule=plateau, meta_steps=30, outer=lambda p: torch.optim.Adam(p, lr=1.0))
        tried = [entry.hyper["decay"] for entry in found.history]
        assert len(set(tried)) > 3
        assert len(set(tried[-3:])) == 1  # the first step that made it worse was the last

    def test_continued_training_needs_fewer_steps(self):
        def run(continued):
            torch.manual_seed(0)
            slow = ridge(rate=0.05)[0]
            return tune(
                step=slow, steps=1, meta_steps=150, continued=continued, outer=lambda p: torch.optim.Adam(p, lr=0.05),
                on_failure="ignore",  # a training of one step is not over, and knowingly so
            )  # fmt: skip

        assert run(continued=True).last["decay"].item() == pytest.approx(2, rel=0.1)
        assert run(continued=False).last["decay"].item() > 100  # what helps a training of one step, and no other

    def test_a_network_that_trains_on_gives_the_last_values_and_the_best_apart(self):
        """An early state may validate better by luck; the hyperparameters of the start are not what was asked for."""
        lucky = iter([0.125, 3.0, 2.0, 1.0])
        torch.manual_seed(0)
        found = tune(continued=True, meta_steps=4, validation=lambda model, hyper: torch.tensor(next(lucky)))
        assert (found.meta_step, found.loss) == (4, 1.0)
        assert found.hyper["decay"].item() == found.history[-1].hyper["decay"] != found.history[0].hyper["decay"]
        assert (found.best.meta_step, found.best.loss) == (1, 0.125)
        assert found.best.hyper["decay"].item() == found.history[0].hyper["decay"]
        step, objective = ridge()
        for kept in (found, found.best):
            step.load(kept.state)
            assert objective(step.model, {}).item() == pytest.approx(found.history[kept.meta_step - 1].loss)

    def test_trained_anew_the_values_are_the_best(self):
        given = iter([0.5, 0.125, 3.0])
        found = tune(meta_steps=3, validation=lambda model, hyper: torch.tensor(next(given)))
        assert (found.meta_step, found.loss) == (found.best.meta_step, found.best.loss) == (2, 0.125)
        assert found.hyper is found.best.hyper

    def test_the_method_of_every_meta_step_is_in_the_history(self):
        """The first steps move; then training is at rest, and its end is differentiated."""
        slow = ridge(rate=0.05)[0]
        found = tune(step=slow, continued=True, steps=5, meta_steps=9, outer=lambda p: torch.optim.Adam(p, lr=1e-3))
        methods = [step.method for step in found.history]
        assert methods[0] == "BPTT()"
        assert methods[-1] == "Implicit(Auto())"
        assert {step.method for step in tune(meta_steps=2).history} == {"BPTT()"}

    def test_early_stopping_watches_the_validation(self):
        calls = []
        found = tune(
            validation=lambda model, hyper: torch.tensor(float(calls.append(1) or min(len(calls), 4) * -1)),
            patience=3,
            meta_steps=50,
        )
        assert len(found.history) == 7  # four improvements, then three without
        assert found.meta_step == 4
        assert found.stopped == "no improvement in 3 meta steps"

    def test_the_state_can_be_loaded_into_the_model(self):
        step, objective = ridge()
        found = hyper.tune(step, {"decay": hyper.Log(0.1)}, objective, batches=[None], steps=40, meta_steps=3, progress=False)
        step.load(found.state)
        assert objective(step.model, {}).item() == found.loss

    def test_degenerate_hyperparameters_are_in_the_history(self):
        with pytest.warns(sg.SteadyStateWarning, match="rate"):
            found = tune(hyper={"rate": hyper.Log(0.15), "decay": hyper.Log(0.1)}, steps=100, meta_steps=1, method="auto")
        assert found.history[0].degenerate == ("rate",)

    def test_a_callback_sees_every_step(self):
        seen = []
        tune(meta_steps=4, method="auto", callback=lambda entry, found: seen.append((entry.meta_step, found.adjoint.residual)))
        assert [step for step, _ in seen] == [1, 2, 3, 4]

    def test_plain_lines_where_there_is_no_terminal(self, capsys):
        tune(meta_steps=3, progress=True)
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("tuning 1/3: loss")
        assert lines[-1].startswith("tuning 3/3: loss")

    def test_a_state_that_begins_with_a_counter(self):
        def step(state, hyper, batch):
            return {
                "count": state["count"] + 1,
                "w": state["w"] - hyper["rate"] * (5 * state["w"] - 7 + hyper["decay"] * state["w"]),
            }

        start = {"count": torch.tensor(0), "w": torch.zeros(1, dtype=torch.float64)}
        found = hyper.tune(
            step, {"decay": hyper.Log(0.1), "rate": 0.1}, lambda state, hyper: (state["w"] - 1).square().sum(),
            state=start, batches=[None], steps=3, meta_steps=2, method="bptt", progress=False,
        )  # fmt: skip
        assert {value.dtype for value in found.last.values()} == {torch.float64}
        assert found.state["count"].item() == 3
        with pytest.raises(TypeError, match="no floating-point tensor"):
            tune(step=step, state={"count": torch.tensor(0)})

    def test_noise_is_in_the_history(self):
        x = torch.randn(30, 2, dtype=torch.float64)
        step = hyper.SGD(nn.Linear(2, 1).double(), lambda model, batch, hyper: (model(batch) - 1).square().mean())
        found = hyper.tune(
            step, {"decay": hyper.Log(0.1)}, lambda model, hyper: (model(x) - 1).square().mean(),
            batches=[x[:10], x[10:20], x[20:]], steps=9, meta_steps=2, last=hyper.Average(3), method="auto",
            progress=False, on_failure="ignore",
        )  # fmt: skip
        assert found.history[0].noise > 0


class TestNaN:
    """With rate > 2/5 the step diverges."""

    def test_a_step_into_nan_is_halved_and_said(self):
        step, _ = ridge()
        with pytest.warns(sg.SteadyStateWarning, match="rejected and halved"):
            found = hyper.tune(  # an objective that always wants faster training
                step, {"rate": hyper.Log(0.05)}, lambda model, hyper: (model.weight - 1.4).square().sum() - hyper["rate"],
                batches=[None], steps=600, meta_steps=3, method=sg.TBPTT(steps=1), progress=False,
                outer=lambda p: torch.optim.Adam(p, lr=3.0),
            )  # fmt: skip
        kept = [entry for entry in found.history if not entry.rejected]
        rejected = [entry for entry in found.history if entry.rejected]
        assert [entry.meta_step for entry in kept] == [1, 2, 3]
        assert rejected
        assert all("finite" in entry.rejected and math.isnan(entry.loss) for entry in rejected), rejected
        assert all(math.isfinite(entry.loss) for entry in kept)
        assert found.hyper["rate"].isfinite()

    def test_nan_at_the_start_is_an_error(self):
        with pytest.raises(hyper.NonfiniteError, match="very first training failed"):
            tune(hyper={"rate": hyper.Log(100.0)}, steps=1000, method="bptt")

    def test_nan_that_halving_does_not_cure_is_an_error(self):
        class Breaks:
            calls = 0

            def __call__(self, model, hyper):
                self.calls += 1
                return (model.weight - hyper["decay"]).square().sum() * (1 if self.calls == 1 else math.nan)

        step, _ = ridge()
        with pytest.raises(hyper.NonfiniteError, match="halved 10 times"):
            hyper.tune(
                step,
                {"decay": hyper.Log(0.1)},
                Breaks(),
                batches=[None],
                steps=3,
                progress=False,
                method="bptt",
                on_failure="ignore",
            )


class TestConstraints:
    @pytest.mark.parametrize("constraint", [hyper.Log, hyper.Logit, hyper.Softplus, hyper.Free])
    def test_there_and_back(self, constraint):
        value = torch.tensor([1e-6, 0.3, 0.99], dtype=torch.float64)
        made = constraint(value)
        torch.testing.assert_close(made.constrained(made.start(value)), value, rtol=1e-12, atol=0)

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: hyper.Log(-1.0), "must be positive"),
            (lambda: hyper.Softplus(0.0), "must be positive"),
            (lambda: hyper.Logit(1.0), "strictly between"),
            (lambda: hyper.Logit(0.5, low=2.0, high=1.0), "below high"),
            (lambda: hyper.Free(math.nan), "finite"),
        ],
    )
    def test_a_start_outside_is_refused(self, make, words):
        with pytest.raises(ValueError, match=words):
            tune(hyper={"decay": make()})

    def test_bounds(self):
        made = hyper.Logit(0.2, low=0.1, high=0.4)
        ends = made.constrained(torch.tensor([-1e3, 1e3]))
        assert ends.tolist() == pytest.approx([0.1, 0.4])

    def test_the_chain_rule(self):
        found = []
        tune(
            hyper={"decay": hyper.Log(0.1)},
            meta_steps=1,
            callback=lambda entry, h: found.append((entry.gradient_norm, h.gradients)),
        )
        norm, gradients = found[0]
        assert norm == pytest.approx(0.1 * abs(gradients["decay"].item()))

    @pytest.mark.parametrize(
        ("changes", "error", "words"),
        [
            ({"hyper": {}}, TypeError, "must be a dict"),
            ({"hyper": {"decay": hyper.Log("a lot")}}, TypeError, "number"),
            ({"meta_steps": 0}, ValueError, "meta_steps"),
            ({"patience": 0}, ValueError, "patience"),
            ({"outer": lambda p: None}, TypeError, "torch.optim"),
            ({"outer": torch.optim.Adam([torch.zeros(1, requires_grad=True)])}, TypeError, "function that makes"),
            ({"outer": lambda p: torch.optim.Adam([torch.zeros(1, requires_grad=True)])}, ValueError, "does not move decay"),
            ({"outer": torch.optim.LBFGS}, TypeError, "LBFGS"),
            ({"schedule": lambda o: None}, TypeError, "schedule must make"),
            ({"callback": 3}, TypeError, "callback must be callable"),
            ({"step": lambda state, hyper, batch: state}, TypeError, "needs state="),
        ],
    )
    def test_bad_input(self, changes, error, words):
        with pytest.raises(error, match=words):
            tune(**changes)


def test_the_example_runs(monkeypatch):
    path = Path(__file__).parents[1] / "examples" / "tune_weight_decay.py"
    spec = importlib.util.spec_from_file_location("tune_weight_decay", path)
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tune_weight_decay", example)
    spec.loader.exec_module(example)
    for name, value in {"GRID": [1e-3, 1e-2], "STEPS": 30, "META_STEPS": 3, "SHORT": 5, "TERMS": 3}.items():
        monkeypatch.setattr(example, name, value)
    data = example.load()
    grid, gradient = example.by_grid(0, data), example.by_gradient(0, data)
    assert grid.decay.shape == ()
    assert gradient.decay.shape == (4,)
    assert len(set(gradient.decay.tolist())) == 4
    assert max(grid.validation, gradient.validation) < math.log(10)  # better than guessing


def test_a_bar_on_a_terminal(monkeypatch):
    pytest.importorskip("rich")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    for name, value in {"TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", terminal)
    tune(meta_steps=3, progress=True)
    with Bar(7, 2, shown=True) as bar:
        bar.step(hyper.MetaStep(3, {}, math.nan, math.nan, math.nan, rejected="a reason " * 20), 0.25)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert re.search(r"tuning ━+ 3/3 .* loss \S+, best \S+", text)
    assert re.search(r"tuning ━+╸?╺?━+ 2/7 .* rejected, half the way back", text)  # the bar keeps its place
