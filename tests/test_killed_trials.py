"""Trials of the real experiments, killed by SIGKILL at any step: the same command goes on and leaves the record of a whole run."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from steadygrad.paper.records import CHECKPOINTS, read
from test_engine import gone, wait_for

SAVING = (str(Path(__file__).parent / "saving_cli.py"),)
"""The command line whose trials save after every step."""
PLAIN = ("-m", "steadygrad")
"""The command line as users have it, which saves nothing in so short a trial."""

STEPS = 4
"""Steps before the kill: by then optimisers have moments, and curves have points."""
SMOKE = ("--preset", "smoke", "--only", "mode=as-published")
TRIALS = {
    "hopfield": (
        *("hopfield", *SMOKE, "method=rbp-uniform"),
        *("--side", "7", "--hidden", "24", "--updates", "12", "--passes", "40", "--validate-every", "7"),
    ),
    "citation": ("citation", *SMOKE, "graph=planted", "method=artbp-poisson", "--updates", "20", "--epochs", "40"),
    "citation, corrected": (
        *("citation", "--preset", "smoke", "--only", "mode=corrected", "graph=planted", "method=auto", "seed=1"),
        *("--epochs", "40", "--updates", "30"),
    ),
    "hyperopt": (
        *("hyperopt", *SMOKE, "task=tune", "method=neumann-rbp"),
        *("--images", "60", "--batch", "20", "--training-steps", "12", "--steps", "6", "--meta-steps", "20"),
    ),
}


class Step(NamedTuple):
    """A step that a trial has done, and in which process."""

    number: int
    process: int


def steps_in(diary):
    return [Step(*map(int, line.split())) for line in diary.read_text().splitlines()] if diary.exists() else []


@pytest.fixture
def start(tmp_path):
    """start(program, trial, out): a run in a process group of its own. What a failed test leaves running is killed."""
    runs = []

    def start(program, trial, out, **variables):
        command = [sys.executable, *program, "run", *TRIALS[trial], "--workers", "1", "--out", str(out)]
        with words_of(out).open("a") as said:  # not a pipe, which somebody would have to read
            run = subprocess.Popen(
                command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True, env=os.environ | variables
            )
        runs.append(run)
        return run

    yield start
    for run in runs:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()


def words_of(out):
    """The file of what the runs into a folder have said."""
    return out.with_suffix(".txt")


def finish(run, out):
    """The record of a run that must succeed."""
    assert run.wait(timeout=300) == 0, words_of(out).read_text()
    (record,) = read(out).records
    return record


def kill(run, worker, whom):
    """SIGKILL to the worker alone, whose parent lives on and says so, or to the whole group, as by a machine that goes down."""
    if whom == "worker":
        os.kill(worker, signal.SIGKILL)
        assert run.wait(timeout=60) == 1
    else:
        os.killpg(run.pid, signal.SIGKILL)
        assert run.wait(timeout=60) == -signal.SIGKILL
    wait_for(lambda: gone(worker))


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("trial", "whom"),
    [
        ("hopfield", "group"),
        slow("hopfield", "worker"),
        slow("citation", "group"),
        slow("citation, corrected", "worker"),
        slow("hyperopt", "group"),
        slow("hyperopt", "worker"),
    ],
)
def test_a_trial_killed_by_sigkill_goes_on_and_leaves_the_record_of_a_whole_one(trial, whom, start, tmp_path):
    expected = finish(start(PLAIN, trial, tmp_path / "whole"), tmp_path / "whole")

    out, before, after = tmp_path / "killed", tmp_path / "before", tmp_path / "after"
    killed = start(SAVING, trial, out, STEPS_DIARY=str(before), WAIT_FOR_THE_KILL="1")
    wait_for(lambda: len(steps_in(before)) >= STEPS and list(out.glob(f"*/{CHECKPOINTS}/*.pt")), killed)
    kill(killed, steps_in(before)[0].process, whom)
    assert not any(record.done for record in read(out).records)
    assert list(out.glob(f"*/{CHECKPOINTS}/*.pt"))

    record = finish(start(SAVING, trial, out, STEPS_DIARY=str(after)), out)
    last, first = steps_in(before)[-1].number, steps_in(after)[0].number
    assert first in (last, last + 1)  # the last step may have been told but not saved: it is done once more
    assert first >= STEPS
    assert record.config == expected.config
    assert repr(record.result) == repr(expected.result)
    assert [path.name for path in (out / record.experiment).iterdir()] == [f"{record.trial}.json"]
