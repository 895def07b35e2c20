"""A tuning that is killed goes on bit for bit, and a checkpoint of anything else is refused."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from typing import NamedTuple

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import steadygrad as sg
from steadygrad import hyper
from tunings import ridge, tune


def same(a, b):
    """Two tunings, bit for bit; NaN equals NaN."""
    assert repr(a.history) == repr(b.history)
    assert all(torch.equal(a.hyper[name], b.hyper[name]) for name in a.hyper)
    assert all(torch.equal(a.last[name], b.last[name]) for name in a.last)
    assert torch.equal(a.state["parameters"]["weight"], b.state["parameters"]["weight"])


class Momentum(NamedTuple):
    w: torch.Tensor
    m: list[torch.Tensor]


class Outside:
    """What a file that is read without running code cannot hold."""

    def __repr__(self):
        return "Outside()"


def descend(state, hyper, batch):
    here = state["here"]
    m = 0.9 * here.m[0] + 5 * here.w - 7 + hyper["decay"] * here.w
    return {3: state[3] + 1, "here": Momentum(here.w - 0.05 * m, [m])}  # in another order than at the start


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
        batches=loader, steps=8, meta_steps=20, method="bptt", seed=None, continued=%s,
        schedule=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.95),
        checkpoint=sys.argv[1], progress=False, callback=lambda entry, found: print(entry.meta_step, flush=True) or time.sleep(float(sys.argv[2])),
    )
    torch.save({"history": repr(found.history), "hyper": found.hyper, "last": found.last, "state": found.state}, sys.argv[1] + ".end")
"""


class TestResume:
    @pytest.mark.parametrize(("continued", "kills"), [(True, 1), pytest.param(False, 5, marks=pytest.mark.slow)])
    def test_after_sigkill_at_any_moment_bit_for_bit(self, tmp_path, continued, kills):
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(SCRIPT % continued))

        def start(name, pause):
            command = [sys.executable, str(script), str(tmp_path / name), str(pause)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

        whole, seen = start("whole", 0), 0
        for kill in range(1, kills + 1):
            killed = start("killed", 0.01)
            while seen < 3 * kill:
                seen = int(killed.stdout.readline())  # it does not start anew: the numbers go on
                assert seen > 3 * (kill - 1)
            time.sleep(random.uniform(0, 0.05))  # in the pause, a training, a hypergradient, or while the file is written
            killed.send_signal(signal.SIGKILL)
            said = killed.communicate()[0].split()
            seen = int(said[-1]) if said else seen
            assert not (tmp_path / "killed.end").exists()
        resumed = start("killed", 0)
        said = resumed.communicate()[0].split()
        whole.communicate()
        assert resumed.returncode == whole.returncode == 0
        assert int(said[0]) > seen
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

    def test_the_best_and_the_last_of_a_network_that_trains_on(self, tmp_path):
        def run(meta_steps, **options):
            torch.manual_seed(1)
            return tune(continued=True, steps=20, meta_steps=meta_steps, **options)

        whole = run(5)
        for count in (2, 5, 5):  # the last time there is nothing left to do
            parts = run(count, checkpoint=tmp_path / "c.pt")
        same(whole, parts)
        assert parts.meta_step == 5
        assert repr(whole.best) == repr(parts.best)
        for kept in (lambda found: found, lambda found: found.best):
            a, b = (kept(found).state["parameters"]["weight"] for found in (whole, parts))
            assert a.equal(b)

    def test_the_memory_that_is_free_later_changes_no_choice(self, tmp_path, monkeypatch):
        tune(meta_steps=2, checkpoint=tmp_path / "c.pt")
        monkeypatch.setattr("steadygrad.hyper.tuning.allowed", lambda memory, device: 1.0)
        resumed = tune(meta_steps=3, checkpoint=tmp_path / "c.pt")
        assert [step.method for step in resumed.history] == ["BPTT()"] * 3
        assert tune(meta_steps=1).history[0].method == "Forward()"
        with pytest.raises(ValueError, match=r"another tuning: {'memory': None} then, {'memory': 5} now"):
            tune(meta_steps=4, memory=5, checkpoint=tmp_path / "c.pt")

    @pytest.mark.parametrize("continued", [True, False])
    def test_a_state_of_a_class_of_ones_own(self, tmp_path, continued):
        def run(meta_steps, **options):
            start = {
                "here": Momentum(torch.zeros(2, dtype=torch.float64), [torch.ones(2, dtype=torch.float64)]),
                3: torch.tensor(0),
            }
            return hyper.tune(
                descend, {"decay": hyper.Log(0.1)}, lambda state, hyper: (state["here"].w - 1).square().sum(), state=start,
                batches=[None], steps=4, meta_steps=meta_steps, method="bptt", progress=False, continued=continued, **options,
            )  # fmt: skip

        whole = run(5)
        for count in (2, 4, 5):
            parts = run(count, checkpoint=tmp_path / "c.pt")
            assert type(parts.state["here"]) is Momentum
        assert repr(whole.history) == repr(parts.history)
        assert repr(whole.state) == repr(parts.state)
        assert torch.equal(whole.last["decay"], parts.last["decay"])

    def test_another_state_is_another_tuning(self, tmp_path):
        def run(state):
            return hyper.tune(
                lambda state, hyper, batch: {name: w - hyper["rate"] * (w - 1) for name, w in state.items()}, {"rate": 0.1},
                lambda state, hyper: sum(w.square().sum() for w in state.values()), state=state, batches=[None], steps=2,
                meta_steps=1, method="bptt", progress=False, checkpoint=tmp_path / "c.pt",
            )  # fmt: skip

        run({"w": torch.zeros(2), "v": torch.zeros(2)})
        with pytest.raises(ValueError, match=r"another tuning.*'u': tensor.* now"):
            run({"w": torch.zeros(2), "u": torch.zeros(2)})
        with pytest.raises(ValueError, match=r"another tuning.*'shapes': \[\[2\], \[2\]\].*'shapes': \[\[3\], \[2\]\]"):
            run({"w": torch.zeros(3), "v": torch.zeros(2)})

    def test_many_numbers_are_kept_as_tensors(self, tmp_path):
        image = torch.linspace(-1, 1, 6).view(2, 3)
        target = torch.tensor([[1.0], [2.0]])

        def run(**options):
            torch.manual_seed(0)
            step = hyper.SGD(nn.Linear(3, 1), lambda model, batch, hyper: (model(hyper["image"]) - target).square().mean())
            return hyper.tune(
                step, {"image": image, "decay": hyper.Log(0.1)}, lambda model, hyper: (model(image + 1) - target).square().mean(),
                batches=[None], steps=2, method="bptt", progress=False, **options,
            )  # fmt: skip

        run(meta_steps=3, checkpoint=tmp_path / "c.pt")
        kept = torch.load(tmp_path / "c.pt", weights_only=True)["history"]
        assert {name: tuple(stacked.shape) for name, stacked in kept["hyper"].items()} == {"image": (3, 2, 3), "decay": (3,)}
        assert all("hyper" not in entry for entry in kept["entries"])
        parts = run(meta_steps=5, checkpoint=tmp_path / "c.pt")
        assert repr(parts.history) == repr(run(meta_steps=5).history)
        assert parts.history[0].hyper["image"] == image.tolist()
        assert isinstance(parts.history[0].hyper["decay"], float)

    def test_after_a_rejected_step(self, tmp_path):
        def run(meta_steps, **options):
            torch.manual_seed(0)
            return hyper.tune(  # an objective that always wants faster training, which diverges
                ridge()[0], {"rate": hyper.Log(0.05)}, lambda model, hyper: (model.weight - 1.4).square().sum() - hyper["rate"],
                batches=[None], steps=600, meta_steps=meta_steps, method=sg.TBPTT(steps=1), progress=False, on_failure="ignore",
                outer=lambda p: torch.optim.Adam(p, lr=3.0), **options,
            )  # fmt: skip

        whole = run(3)
        for count in (1, 2, 3):
            parts = run(count, checkpoint=tmp_path / "c.pt")
        assert any(entry.rejected for entry in parts.history)
        same(whole, parts)

    def test_a_loader_with_a_generator_of_its_own(self, tmp_path):
        x = torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]

        def run(meta_steps, **options):
            torch.manual_seed(1)
            step = hyper.SGD(
                nn.Linear(1, 1).double(), lambda model, batch, hyper: (model(batch[0]) - batch[0].exp()).square().mean()
            )
            loader = DataLoader(TensorDataset(x), batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(2))
            return hyper.tune(
                step, {"decay": hyper.Log(0.1)}, lambda model, hyper: (model(x) - 1).square().mean(), batches=loader, steps=4,
                meta_steps=meta_steps, method="bptt", progress=False, **options,
            )  # fmt: skip

        for seed in (None, 0):
            whole = run(5, seed=seed)
            for count in (2, 5):
                parts = run(count, seed=seed, checkpoint=tmp_path / f"{seed}.pt")
            same(whole, parts)

    def test_numbers_of_numpy(self, tmp_path):
        options = {"outer": lambda p: torch.optim.Adam(p, lr=numpy.float64(0.3)), "seed": numpy.int64(0)}
        whole = tune(meta_steps=4, **options)
        for count in (2, 4):
            parts = tune(meta_steps=count, checkpoint=tmp_path / "c.pt", **options)
        assert repr(whole.history) == repr(parts.history)

    @pytest.mark.parametrize("when", ["made", "stepped"])
    def test_what_could_not_be_read_again_is_refused_at_once(self, tmp_path, when):
        class Odd(torch.optim.SGD):
            def __init__(self, parameters):
                super().__init__(parameters, lr=0.1)
                if when == "made":
                    self.param_groups[0]["odd"] = Outside()

            def step(self):
                super().step()
                for p in self.param_groups[0]["params"]:
                    self.state[p]["odd"] = Outside()

        seen = []
        with pytest.raises(TypeError, match=r"state of outer cannot be kept.*without checkpoint"):
            tune(outer=Odd, checkpoint=tmp_path / "c.pt", callback=lambda *_: seen.append(1))
        assert not seen
        assert not list(tmp_path.iterdir())

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
        for changes in (
            {"hyper": {"decay": hyper.Softplus(0.1)}},
            {"hyper": {"decay": hyper.Log(0.2)}},
            {"outer": lambda p: torch.optim.Adam(p, lr=0.2)},
            {"schedule": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9)},
        ):
            with pytest.raises(ValueError, match="another tuning"):
                tune(meta_steps=1, checkpoint=tmp_path / "c.pt", **changes)

    def test_other_bounds_are_another_tuning(self, tmp_path):
        tune(meta_steps=1, hyper={"decay": hyper.Logit(0.1)}, checkpoint=tmp_path / "c.pt")
        with pytest.raises(ValueError, match="another tuning"):
            tune(meta_steps=1, hyper={"decay": hyper.Logit(0.1, high=0.5)}, checkpoint=tmp_path / "c.pt")

    def test_a_place_that_cannot_be_written_is_refused_before_any_work(self, tmp_path):
        (tmp_path / "file").write_text("")
        for path in (tmp_path, tmp_path / "file" / "c.pt"):
            with pytest.raises(ValueError, match="name another file"):
                tune(checkpoint=path, callback=lambda *_: pytest.fail("it worked for nothing"))

    def test_what_a_kill_left_half_written_does_not_stay(self, tmp_path):
        (tmp_path / ".c.pt.part").write_text("half")
        tune(meta_steps=1, checkpoint=tmp_path / "c.pt")
        assert [p.name for p in tmp_path.iterdir()] == ["c.pt"]

    def test_a_foreign_file_is_refused(self, tmp_path):
        (tmp_path / "c.pt").write_text("not a checkpoint")
        with pytest.raises(ValueError, match="no checkpoint"):
            tune(checkpoint=tmp_path / "c.pt")
        torch.save({"something": 1}, tmp_path / "d.pt")
        with pytest.raises(ValueError, match="no checkpoint"):
            tune(checkpoint=tmp_path / "d.pt")
        assert (tmp_path / "c.pt").read_text() == "not a checkpoint"
