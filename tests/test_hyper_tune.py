"""The outer loop: it finds the minimum, survives NaN, and goes on bit for bit after being killed."""

import importlib.util
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import steadygrad as sg
from steadygrad import hyper

OUTER = lambda parameters: torch.optim.Adam(parameters, lr=0.3)  # noqa: E731


def ridge(rate=0.15):
    """w = 7 / (5 + decay) after training; the objective wants w = 1, so decay = 2."""
    x, y = torch.tensor([[1.0], [2.0]], dtype=torch.float64), torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    model = nn.Linear(1, 1, bias=False).double()
    step = hyper.SGD(model, lambda model, batch, hyper: (model(x) - y).square().mean(), rate=rate)
    return step, lambda model, hyper: (model(x) - x).square().mean()


def tune(**changes):
    step, objective = ridge()
    options = {"batches": [None], "steps": 40, "meta_steps": 12, "outer": OUTER, "progress": False, **changes}
    return hyper.tune(options.pop("step", step), options.pop("hyper", {"decay": hyper.Log(0.1)}), objective, **options)


def same(a, b):
    """Two tunings, bit for bit; NaN equals NaN."""
    assert repr(a.history) == repr(b.history)
    assert all(torch.equal(a.hyper[name], b.hyper[name]) for name in a.hyper)
    assert all(torch.equal(a.last[name], b.last[name]) for name in a.last)
    assert torch.equal(a.state["parameters"]["weight"], b.state["parameters"]["weight"])


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

    def test_continued_training_needs_fewer_steps(self):
        def run(continued):
            torch.manual_seed(0)
            slow = ridge(rate=0.05)[0]
            return tune(step=slow, steps=1, meta_steps=150, continued=continued, outer=lambda p: torch.optim.Adam(p, lr=0.05))

        assert run(continued=True).last["decay"].item() == pytest.approx(2, rel=0.1)
        assert run(continued=False).last["decay"].item() > 100  # what helps a training of one step, and no other

    def test_early_stopping_watches_the_validation(self):
        calls = []
        found = tune(
            validation=lambda model, hyper: torch.tensor(float(calls.append(1) or min(len(calls), 4) * -1)),
            patience=3,
            meta_steps=50,
        )
        assert len(found.history) == 8  # four improvements, then more than three without
        assert found.meta_step == 4
        assert found.stopped == "no improvement in 3 meta steps"

    def test_the_state_can_be_loaded_into_the_model(self):
        step, objective = ridge()
        found = hyper.tune(step, {"decay": hyper.Log(0.1)}, objective, batches=[None], steps=40, meta_steps=3, progress=False)
        step.load(found.state)
        assert objective(step.model, {}).item() == found.loss

    def test_degenerate_hyperparameters_are_in_the_history(self):
        with pytest.warns(sg.SteadyStateWarning, match="rate"):
            found = tune(hyper={"rate": hyper.Log(0.15), "decay": hyper.Log(0.1)}, steps=100, meta_steps=1)
        assert found.history[0].degenerate == ("rate",)

    def test_a_callback_sees_every_step(self):
        seen = []
        tune(meta_steps=4, callback=lambda entry, found: seen.append((entry.meta_step, found.adjoint.residual)))
        assert [step for step, _ in seen] == [1, 2, 3, 4]

    def test_plain_lines_where_there_is_no_terminal(self, capsys):
        tune(meta_steps=3, progress=True)
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("tuning 1/3: loss")
        assert lines[-1].startswith("tuning 3/3: loss")

    def test_noise_is_in_the_history(self):
        x = torch.randn(30, 2, dtype=torch.float64)
        step = hyper.SGD(nn.Linear(2, 1).double(), lambda model, batch, hyper: (model(batch) - 1).square().mean())
        found = hyper.tune(
            step, {"decay": hyper.Log(0.1)}, lambda model, hyper: (model(x) - 1).square().mean(),
            batches=[x[:10], x[10:20], x[20:]], steps=9, meta_steps=2, last=hyper.Average(3), progress=False,
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


SCRIPT = """
    import sys, time
    import torch
    from torch import nn
    from steadygrad import hyper

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(40, 3), torch.randn(40, 1)
    net = nn.Sequential(nn.Linear(3, 5, bias=False), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 1))
    step = hyper.SGD(net, lambda model, batch, hyper: (model(batch[0]) - batch[1]).square().mean(), rate=0.1, momentum=0.5)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=10, shuffle=True)
    found = hyper.tune(
        step, {"decay": hyper.Log(step.per_tensor(1e-2)), "momentum": hyper.Logit(0.5)},
        lambda model, hyper: (model(x[:20]) - y[:20]).square().mean(),
        batches=loader, steps=8, meta_steps=12, method="bptt", seed=None, continued=%s,
        schedule=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.95),
        checkpoint=sys.argv[1], progress=False, callback=lambda entry, found: print(entry.meta_step, flush=True) or time.sleep(float(sys.argv[2])),
    )
    torch.save({"history": repr(found.history), "hyper": found.hyper, "last": found.last, "state": found.state}, sys.argv[1] + ".end")
"""


class TestResume:
    @pytest.mark.parametrize("continued", [True, pytest.param(False, marks=pytest.mark.slow)])
    def test_after_sigkill_bit_for_bit(self, tmp_path, continued):
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(SCRIPT % continued))

        def start(name, pause):
            command = [sys.executable, str(script), str(tmp_path / name), str(pause)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

        killed, whole = start("killed", 0.2), start("whole", 0)
        while killed.stdout.readline().strip() != "5":
            assert killed.poll() is None
        time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert not (tmp_path / "killed.end").exists()
        resumed = start("killed", 0)
        first = resumed.communicate()[0].split()
        whole.communicate()
        assert resumed.returncode == whole.returncode == 0
        assert first[0] == "6"  # it did not start anew
        a, b = (torch.load(tmp_path / f"{name}.end") for name in ("killed", "whole"))
        assert a["history"] == b["history"]
        for key in ("hyper", "last"):
            assert all(torch.equal(a[key][name], b[key][name]) for name in a[key])
        assert all(torch.equal(p, b["state"]["parameters"][n]) for n, p in a["state"]["parameters"].items())
        assert sorted(p.name for p in tmp_path.iterdir()) == ["killed", "killed.end", "script.py", "whole", "whole.end"]

    def test_in_parts_and_in_one(self, tmp_path):
        torch.manual_seed(1)
        whole = tune(meta_steps=8)
        for count in (3, 5, 8):
            torch.manual_seed(1)
            parts = tune(meta_steps=count, checkpoint=tmp_path / "deep" / "c.pt")
        same(whole, parts)

    def test_a_finished_tuning_is_only_read(self, tmp_path):
        first = tune(meta_steps=4, checkpoint=tmp_path / "c.pt")
        seen = []
        again = tune(meta_steps=4, checkpoint=tmp_path / "c.pt", callback=lambda *_: seen.append(1))
        same(first, again)
        assert seen == []

    def test_another_tuning_is_refused(self, tmp_path):
        tune(meta_steps=1, checkpoint=tmp_path / "c.pt")
        with pytest.raises(ValueError, match=r"another tuning.*'steps': 40.*'steps': 41"):
            tune(meta_steps=1, steps=41, checkpoint=tmp_path / "c.pt")
        with pytest.raises(ValueError, match="another tuning"):
            tune(meta_steps=1, hyper={"decay": hyper.Softplus(0.1)}, checkpoint=tmp_path / "c.pt")

    def test_a_foreign_file_is_refused(self, tmp_path):
        (tmp_path / "c.pt").write_text("not a checkpoint")
        with pytest.raises(ValueError, match="no checkpoint"):
            tune(checkpoint=tmp_path / "c.pt")
        torch.save({"something": 1}, tmp_path / "d.pt")
        with pytest.raises(ValueError, match="no checkpoint"):
            tune(checkpoint=tmp_path / "d.pt")
        assert (tmp_path / "c.pt").read_text() == "not a checkpoint"


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
