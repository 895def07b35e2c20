"""Runs that are killed, that fail, that meet one another: the records end up the same. Real processes throughout."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steadygrad.calls import cores
from steadygrad.paper.engine import Listener, Summary, run
from steadygrad.paper.engine.locks import TrialLocks
from steadygrad.paper.experiments.experiment import Experiment, Preset, merge, settings
from steadygrad.paper.records import read
from toy import TOY, Toy, seeds

METHODS = ("sum", "fail", "die", "tensor", "inf", "warn", "machine", "exit")


class Notes(Listener):
    def __init__(self):
        self.total, self.known, self.strangers, self.ended, self.steps = 0, [], [], [], []

    def begin(self, total, known, strangers):
        self.total, self.known, self.strangers = total, list(known), list(strangers)

    def step(self, trial, fraction, note):
        self.steps.append((trial, fraction, note))

    def finished(self, record):
        self.ended.append(record)


def outcome(folder):
    """What must not depend on how often a run was stopped: config, result, and whether there was an error."""
    return {record.trial: repr((record.config, record.result, record.done)) for record in read(folder).records}


def names(folder):
    """The files in the toy's folder."""
    return {path.name for path in (folder / "toy").iterdir()}


def gone(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def wait_for(condition, process=None):
    for _ in range(1200):
        if condition():
            return
        assert process is None or process.poll() is None, "the run ended before it could be stopped"
        time.sleep(0.05)
    pytest.fail("waited a minute in vain")


def command(out, *words):
    tool = Path(__file__).parent / "toy_cli.py"
    return [
        sys.executable,
        str(tool),
        "run",
        "toy",
        "--preset",
        "standard",
        "--method",
        "sum",
        "--workers",
        "2",
        "--out",
        str(out),
        *words,
    ]


def start(out, diary, *words):
    """The command line in a process group of its own, as a shell starts it."""
    environment = os.environ | {"TOY_DIARY": str(diary)}
    return subprocess.Popen(
        command(out, *words),
        env=environment,
        start_new_session=True,
        preexec_fn=heed_interrupts,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def heed_interrupts():
    """A shell lets its background jobs ignore Ctrl-C, and their children inherit that: so would a test run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def diary_of(path):
    """The (seed, process) of every trial that was started."""
    return [(int(line.split()[1]), int(line.split()[2])) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """One run with all that can go wrong in a trial: its folder, what the listener heard, the summary."""
    out, notes = tmp_path_factory.mktemp("mixed"), Notes()
    summary = run(TOY, [Toy(method=method) for method in METHODS], out, workers=1, listener=notes)
    return out, notes, summary


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The records of the standard preset by a run that nobody stopped."""
    out = tmp_path_factory.mktemp("whole")
    run(TOY, [*seeds(8, seconds=0.1), Toy()], out, workers=1)
    return outcome(out)


def test_failures_leave_records_and_the_others_go_on(mixed):
    out, notes, summary = mixed
    assert summary == Summary(done=4, skipped=0, failed=4)
    by_method = {record.config["method"]: record for record in read(out).records}
    assert set(by_method) == set(METHODS)
    assert {method for method, record in by_method.items() if not record.done} == {"fail", "die", "tensor", "exit"}
    assert "Traceback" in by_method["fail"].error
    assert "RuntimeError: this trial was made to fail" in by_method["fail"].error
    assert "ended by SIGKILL while this trial ran" in by_method["die"].error
    assert "SystemExit: 3" in by_method["exit"].error
    assert "result['total'] is a Tensor, which JSON cannot hold" in by_method["tensor"].error
    assert by_method["warn"].measured["warnings"] == ["UserWarning: the toy is worn out"]
    assert repr(by_method["inf"].result["values"]) == "[nan, inf, -inf, 0.30000000000000004]"


def test_trials_start_in_the_order_given_and_tell_how_far_they_are(mixed):
    _, notes, _ = mixed
    assert [record.config["method"] for record in notes.ended] == list(METHODS)
    assert notes.total == len(METHODS)
    first = TOY.trial(Toy(method="sum"))
    assert [(fraction, note[:3]) for trial, fraction, note in notes.steps if trial == first] == [(1 / 3, "sum")]


def test_what_is_measured_stands_apart_from_the_result(mixed):
    out, _, _ = mixed
    record = next(record for record in read(out).records if record.config["method"] == "sum")
    assert set(record.result) == {"total", "curve"}
    assert set(record.measured) == {"pid", "started", "seconds", "peak_mb", "warnings"}
    assert record.environment["torch"]


def test_workers_flush_denormals_and_have_one_thread(mixed):
    out, _, _ = mixed
    record = next(record for record in read(out).records if record.config["method"] == "machine")
    assert record.result == {"flushes": True, "threads": 1, "omp": "1"}


def test_a_run_leaves_nothing_but_records(mixed):
    out, _, _ = mixed
    assert names(out) == {f"{TOY.trial(Toy(method=method))}.json" for method in METHODS}


def test_rerun_tries_failures_again_skips_what_is_done_and_mends_what_is_broken(mixed):
    out, _, _ = mixed
    kept = {path: path.read_bytes() for path in (out / "toy").iterdir()}
    failed, broken = out / "toy" / f"{TOY.trial(Toy(method='fail'))}.json", out / "toy" / f"{TOY.trial(Toy())}.json"
    broken.write_bytes(kept[broken][:40])
    stranger = out / "toy" / "notes.txt"
    stranger.write_text("mine")
    litter = out / "toy" / f".{TOY.trial(Toy())}.1-abc.part"
    litter.write_text("{")
    notes = Notes()
    summary = run(TOY, [Toy(), Toy(method="fail"), Toy(method="warn")], out, workers=1, listener=notes)
    assert summary == Summary(done=1, skipped=1, failed=1)
    assert {item.path for item in notes.strangers} == {broken, stranger, litter}
    assert [record.config["method"] for record in notes.known] == ["warn"]
    changed = {path for path, content in kept.items() if path.read_bytes() != content}
    assert changed == {failed, broken}
    assert not litter.exists()
    assert stranger.read_text() == "mine"
    assert repr(read(out).strangers) == repr([item for item in notes.strangers if item.path == stranger])


def test_killed_run_is_resumed_to_the_same_records(tmp_path, uninterrupted):
    out, diary = tmp_path / "runs", tmp_path / "diary"
    process = start(out, diary)
    wait_for(lambda: len(list(out.glob("toy/*.json"))) >= 2, process)
    process.kill()
    process.communicate()
    started = diary_of(diary)
    wait_for(lambda: all(gone(pid) for _, pid in started))  # workers do not outlive their parent
    kept = {path: path.read_bytes() for path in out.glob("toy/*.json")}
    assert 2 <= len(kept) < 9
    assert outcome(out).items() <= uninterrupted.items()

    resumed = start(out, tmp_path / "second", "--workers", "1")
    text, errors = resumed.communicate()
    assert resumed.returncode == 0, errors
    assert outcome(out) == uninterrupted
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert len(diary_of(tmp_path / "second")) == 9 - len(kept)
    assert names(out) == {f"{trial}.json" for trial in uninterrupted}


def test_interrupted_run_ends_cleanly(tmp_path):
    out, diary = tmp_path / "runs", tmp_path / "diary"
    process = start(out, diary, "--seconds", "0.3", "--workers", "1")
    wait_for(lambda: len(list(out.glob("toy/*.json"))) >= 1 and len(diary_of(diary)) >= 2, process)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: the whole group
    text, errors = process.communicate()
    assert process.returncode == 130
    assert errors == "steadygrad: stopped. What is done is kept; the same command goes on with the rest.\n"
    found = read(out)
    assert 1 <= len(found.records) < 9
    assert all(record.done for record in found.records)
    assert names(out) == {f"{record.trial}.json" for record in found.records}
    assert all(gone(pid) for _, pid in diary_of(diary))


def test_two_runs_on_one_folder_share_the_work(tmp_path, uninterrupted):
    out, diary = tmp_path / "runs", tmp_path / "diary"
    both = [start(out, diary, "--workers", "1") for _ in range(2)]
    ends = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert outcome(out) == uninterrupted
    assert len(diary_of(diary)) == 9  # no trial twice
    assert len({pid for _, pid in diary_of(diary)}) == 2
    assert names(out) == {f"{trial}.json" for trial in uninterrupted}


def test_locks_hold_between_processes_and_end_with_them(tmp_path):
    code = "import sys; from pathlib import Path; from steadygrad.paper.engine.locks import TrialLocks; c = TrialLocks(Path(sys.argv[1])).__enter__(); print(c.take('a' * 16), c.take('b' * 16), flush=True); sys.stdin.read()"
    with TrialLocks(tmp_path) as locks:
        assert locks.take("a" * 16)
        other = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert other.stdout.readline() == "False True\n"
        assert not locks.take("b" * 16)
        other.kill()
        other.communicate()
        assert locks.take("b" * 16)
    assert list(tmp_path.iterdir()) == []


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="workers is 0; at least one process"):
        run(TOY, seeds(1), tmp_path, workers=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        run(TOY, seeds(1), tmp_path / "file")
    with pytest.raises(TypeError, match="expected a Toy"):
        Experiment("x", "", Toy, {"smoke": Preset((3,), 1.0, "")}, TOY.run, TOY.headline)
    with pytest.raises(TypeError, match="a frozen dataclass with a field seed"):
        Experiment("x", "", int, {}, TOY.run, TOY.headline)
    with pytest.raises(TypeError, match=r"rate .* is a list"):
        settings(Toy(rate=[1.0]))


def test_nothing_to_do_starts_no_process(tmp_path):
    assert run(TOY, [], tmp_path) == Summary(0, 0, 0)
    assert cores() == len(os.sched_getaffinity(0))


def test_whole_numbers_in_float_fields_are_one_trial():
    assert repr(settings(Toy(rate=1))) == repr(settings(Toy(rate=1.0)))
    assert TOY.trial(Toy(rate=1)) == TOY.trial(Toy(rate=1.0)) != TOY.trial(Toy(rate=1.1))
    assert merge(TOY, [Toy(rate=1), Toy(seed=4), Toy(rate=1.0)]) == [Toy(rate=1), Toy(seed=4)]
