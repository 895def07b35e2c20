"""Trials that are stopped go on from their checkpoint and leave the result of an uninterrupted one, bit for bit."""

import random
from dataclasses import replace

import numpy
import pytest
import torch

from steadygrad.paper.engine import run as run_all
from steadygrad.paper.experiments.checkpoint import Checkpoint
from steadygrad.paper.experiments.citation.experiment import run as citation
from steadygrad.paper.experiments.citation.presets import CORRECTED, PUBLISHED
from steadygrad.paper.experiments.hopfield.experiment import run as hopfield
from steadygrad.paper.experiments.hopfield.presets import PUBLISHED as HOPFIELD
from steadygrad.paper.experiments.hyperopt.experiment import run as hyperopt
from steadygrad.paper.experiments.hyperopt.presets import PUBLISHED as HYPEROPT
from steadygrad.paper.records import read
from toy import RESUMING, Toy

SMALL = replace(HOPFIELD, side=7, hidden=24, passes=6, updates=12, validate_every=2, method="rbp-uniform")
TRIALS = {
    "hopfield": (hopfield, SMALL, 4),
    "hopfield, between validations": (hopfield, replace(SMALL, passes=5, method="bptt"), 3),
    "citation, dropout": (citation, replace(CORRECTED["planted"], epochs=6, updates=30), 4),
    "citation, as published": (citation, replace(PUBLISHED["planted"], epochs=5, updates=20, method="artbp-poisson"), 2),
    "hyperopt": (
        hyperopt,
        replace(HYPEROPT, images=60, training_steps=12, steps=6, meta_steps=5, batch=20, reference_every=2, method="neumann-rbp"),
        3,
    ),
}


class StoppedError(Exception):
    """Stands for a kill: what is not on the disk is lost."""


def stopping(at):
    def report(done, total, note):
        if done == at:
            raise StoppedError

    return report


def quiet(done, total, note): ...


def begin(config):
    """As a worker does, but for the seed: a generator that is not restored would show."""
    torch.manual_seed(config.seed)
    random.seed(config.seed)
    numpy.random.seed(config.seed)


@pytest.mark.parametrize("name", TRIALS)
def test_a_stopped_trial_ends_as_one_that_was_not(name, tmp_path):
    run, config, at = TRIALS[name]
    begin(config)
    whole = run(config, quiet, Checkpoint())
    begin(config)
    with pytest.raises(StoppedError):
        run(config, stopping(at), Checkpoint(tmp_path / "c" / "trial.pt", every=0))
    torch.manual_seed(99)
    random.seed(99)
    numpy.random.seed(99)
    seen = []
    resumed = run(config, lambda done, total, note: seen.append(done), Checkpoint(tmp_path / "c" / "trial.pt", every=0))
    assert min(seen) == at  # the pass that was stopped before its save is the first to be done again
    assert set(resumed.pop("measured")) == set(whole.pop("measured"))
    assert repr(resumed) == repr(whole)


def test_a_broken_checkpoint_is_not_used(tmp_path):
    path = tmp_path / "trial.pt"
    for content in (b"", b"nonsense"):
        path.write_bytes(content)
        with pytest.warns(UserWarning, match="is no checkpoint of this version, the trial starts again"):
            assert Checkpoint(path).load() is None
    torch.save({"format": "another"}, path)
    with pytest.warns(UserWarning, match="its format is 'another'"):
        assert Checkpoint(path).load() is None


def test_it_saves_now_and_then_only_and_leaves_nothing(tmp_path):
    path = tmp_path / "c" / "trial.pt"
    Checkpoint(path, every=1000).save(lambda: {"a": 1})
    assert not path.parent.exists()
    checkpoint = Checkpoint(path, every=0)
    checkpoint.save(lambda: {"a": torch.ones(2), "b": [1, None, "x"]})
    assert Checkpoint(path).load()["b"] == [1, None, "x"]
    (path.parent / "other.pt").write_text("")
    checkpoint.remove()
    assert [p.name for p in path.parent.iterdir()] == ["other.pt"]


def test_a_worker_that_was_killed_goes_on(tmp_path):
    """The toy kills its own process with SIGKILL at its second step, once; what it added before is not added again."""
    config = Toy(method="die-once", steps=4, seed=3)
    assert run_all(RESUMING, [config], tmp_path, workers=1).failed == 1
    assert (tmp_path / "resuming" / ".checkpoints").exists()
    assert run_all(RESUMING, [config], tmp_path, workers=1).done == 1
    (record,) = read(tmp_path).records
    expected = random.Random(3)
    assert record.result["total"] == sum(config.rate * expected.random() for _ in range(4))
    assert record.result["steps here"] == 3
    assert [p.name for p in (tmp_path / "resuming").iterdir()] == [f"{record.trial}.json"]
