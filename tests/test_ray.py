"""Runs on a Ray cluster end with the records of local ones, whatever is killed meanwhile. One cluster of two nodes on loopback."""

import faulthandler
import importlib.util
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import steadygrad.calls.session as session
from steadygrad import hyper
from steadygrad.calls import Ray, crew
from steadygrad.paper.cli import main
from steadygrad.paper.engine import Listener, Summary, run
from steadygrad.paper.records import read
from test_engine import METHODS, diary_of, gone, heed_interrupts, names
from test_hyper_many import alone, same
from toy import RESUMING, TOY, Toy, seeds
from tunings import from_start

# One process of pytest-xdist has all of them, for they share a cluster.
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'steadygrad[ray]'"),
    pytest.mark.xdist_group("ray"),
    pytest.mark.usefixtures("limited"),
]
LIMIT = 240.0
"""Seconds after which a test has failed: ten times what the slowest takes where nothing else runs."""
MIXED = [Toy(method=method) for method in METHODS]
SLOW, STANDARD, SLOWER = seeds(5, seconds=0.4), [*seeds(8, seconds=0.1), Toy()], seeds(4, seconds=0.7)


@contextmanager
def at_most(seconds):
    """A hang fails: by an error at first, and where Python cannot raise one, by the end of the process."""

    def late(number, frame):
        raise TimeoutError(f"the test took more than {seconds} s")

    faulthandler.dump_traceback_later(1.5 * seconds, exit=True)
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def limited():
    with at_most(LIMIT):
        yield


@pytest.fixture(scope="module")
def diary(tmp_path_factory):
    return tmp_path_factory.mktemp("diary") / "lines"


@pytest.fixture(scope="module")
def nodes(diary):
    """A cluster of two nodes with a core each, as Ray simulates it on one machine; this process is connected to the first."""
    variables = {"TOY_DIARY": str(diary), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    variables |= session.ON_LOOPBACK | session.SILENT
    with ExitStack() as stack:
        with at_most(LIMIT):
            folder = stack.enter_context(session.temporary_folder())
            stack.enter_context(session.variables(variables | {"RAY_TMPDIR": folder}))
            (Path(folder) / "ray").mkdir()
            session.imported()
            from ray.cluster_utils import Cluster

            cluster = Cluster()
            stack.callback(cluster.shutdown)
            cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", include_dashboard=False)
            cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
            _, ours = stack.enter_context(session.connected(cluster.address, cores=0))
            assert not ours
        yield cluster


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The records of the local engine, by trial."""
    out = tmp_path_factory.mktemp("local")
    run(TOY, [*MIXED, *SLOW, *STANDARD, *SLOWER], out, workers=2)
    return {record.trial: record for record in read(out).records}


@pytest.fixture
def fresh_diary(nodes, diary):
    diary.unlink(missing_ok=True)
    return diary


class Notes(Listener):
    def __init__(self):
        self.steps, self.repeated = [], []

    def step(self, trial, fraction, note):
        self.steps.append((trial, fraction, note))

    def again(self, trial, reason, attempt):
        self.repeated.append((trial, reason, attempt))


def elsewhere(act):
    """Do something while the engine has this thread."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def until(condition, process=None):
    """Wait, as long as the test may take, and no longer than the process lives."""
    last = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < last, "waited in vain"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)


def field_of(pid, number):
    """A field of /proc/pid/stat, counted from the state of the process; None where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[number])
    except (FileNotFoundError, ProcessLookupError):
        return None


def parent(pid):
    return field_of(pid, 1)


def last_line(record):
    return record.error and record.error.strip().splitlines()[-1]


def check_same(out, local, configs):
    """Every trial has its record and nothing else is there; all but times and process numbers is as the local engine has it."""
    found = {record.trial: record for record in read(out).records}
    assert set(found) == {TOY.trial(config) for config in configs}
    assert names(out) == {f"{trial}.json" for trial in found}
    for trial, one in found.items():
        other = local[trial]
        assert repr((one.config, one.result)) == repr((other.config, other.result))
        assert one.environment | {"commit": ""} == other.environment | {"commit": ""}  # somebody may commit meanwhile
        assert set(one.measured) == set(other.measured)
        if one.config["method"] != "die":  # each engine has its words for that
            assert last_line(one) == last_line(other)


def test_the_records_are_those_of_the_local_engine(nodes, local, tmp_path):
    notes = Notes()
    summary = run(TOY, MIXED, tmp_path, listener=notes, cluster=Ray(retries=1))
    assert summary == Summary(done=4, skipped=0, failed=4)
    check_same(tmp_path, local, MIXED)
    died = next(record for record in read(tmp_path).records if record.config["method"] == "die")
    assert "The worker was lost on the Ray cluster (WorkerCrashedError" in died.error
    assert [(trial, attempt) for trial, _, attempt in notes.repeated] == [(died.trial, 2)]
    first = TOY.trial(Toy(method="sum"))
    assert (first, 1 / 3) in [(trial, fraction) for trial, fraction, note in notes.steps if note.startswith("sum")]


def test_a_killed_worker_costs_its_trial_one_attempt(local, tmp_path, fresh_diary):
    killed = []

    def kill():
        until(lambda: diary_of(fresh_diary))
        seed, pid = diary_of(fresh_diary)[0]
        os.kill(pid, signal.SIGKILL)
        killed.append(seed)

    notes = Notes()
    thread = elsewhere(kill)
    assert run(TOY, SLOW, tmp_path, listener=notes, cluster=Ray()) == Summary(done=5, skipped=0, failed=0)
    thread.join()
    assert [(trial, attempt) for trial, _, attempt in notes.repeated] == [(TOY.trial(SLOW[killed[0]]), 2)]
    started = [seed for seed, _ in diary_of(fresh_diary)]
    assert sorted(started) == sorted([0, 1, 2, 3, 4, *killed])
    check_same(tmp_path, local, SLOW)


def test_a_retried_trial_goes_on_from_its_checkpoint(nodes, tmp_path):
    """The toy kills its own process at its second step, once; what it added before is not added again."""
    config = Toy(method="die-once", steps=4, seed=3)
    assert run(RESUMING, [config], tmp_path, cluster=Ray()) == Summary(done=1, skipped=0, failed=0)
    (record,) = read(tmp_path).records
    expected = random.Random(3)
    assert record.result == {"total": sum(config.rate * expected.random() for _ in range(4)), "steps here": 3}
    assert [path.name for path in (tmp_path / "resuming").iterdir()] == [f"{record.trial}.json"]


def test_tunings_on_ray_are_those_of_one_process(nodes, tmp_path):
    """One of them dies after its third meta step and goes on from its checkpoint; one raises."""
    starts = [{"decay": 0.1, "what": f"die {tmp_path / 'died'}"}, {"decay": 0.2, "what": "raise"}, {"decay": 2.5}]
    found = hyper.tune_many(from_start, starts, cluster=Ray(), checkpoints=tmp_path / "kept", progress=False, on_failure="ignore")
    assert (tmp_path / "died").exists()
    assert [tuned.start for tuned in found.done] == [starts[2], starts[0]]
    assert [tuned.reason for tuned in found.failed] == ["ValueError: this start was made to fail"]
    assert all(same(tuned.tuning, alone(tuned.start)) for tuned in found.done)


def test_what_no_machine_has_is_said(nodes):
    with pytest.warns(UserWarning, match="no machine has the 64 cores and 0 GPUs"), crew(None, Ray(cpus=64)):
        pass
    with pytest.raises(ValueError, match=r"this process is connected to Ray at '127\.0\.0\.1:"), crew(None, Ray("10.0.0.1:6379")):
        pass


def test_ctrl_c_ends_a_ray_of_its_own_and_another_run_goes_on(nodes, local, tmp_path):
    """The command line with a Ray that it starts itself, on loopback; the rest is done on the cluster."""
    out, diary = tmp_path / "runs", tmp_path / "diary"
    process, text, errors, started = interrupted(out, diary)
    if "libc.so.6(+0x" in errors:  # Ray itself was aborted by the signal, with a trace of its own C++: seen once
        process, text, errors, started = interrupted(out, diary)
    assert process.returncode == 130, (text, errors)
    assert errors == "steadygrad: stopped. What is done is kept; the same command goes on with the rest.\n"
    until(lambda: all(gone(pid) for pid in started))
    assert not any(str(path).startswith(f"/tmp/{session.PREFIX}{process.pid}-") for path in Path("/tmp").iterdir())
    done = read(out).records
    assert 1 <= len(done) < 9
    assert all(record.done for record in done)

    assert run(TOY, STANDARD, out, cluster=Ray()) == Summary(9 - len(done), len(done), 0)
    check_same(out, local, STANDARD)


def interrupted(out, diary):
    """A run of the command line on a Ray of its own, stopped by Ctrl-C at work: the process, what it said, and those it started."""
    tool, had = str(Path(__file__).parent / "toy_cli.py"), len(diary_of(diary)) if diary.exists() else 0
    words = ["run", "toy", "--preset", "standard", "--method", "sum", "--out", str(out), "--engine", "ray", "--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, tool, *words], env=os.environ | {"TOY_DIARY": str(diary)}, start_new_session=True,
        preexec_fn=heed_interrupts, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until(lambda: len(list(out.glob("toy/*.json"))) >= 1 and len(diary_of(diary)) >= had + 2, process)
        started = family(process.pid)
        assert any("raylet" in Path(f"/proc/{pid}/cmdline").read_text() for pid in started)
        assert {address for pid in started for address in listening(pid)} == {"127.0.0.1"}
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        text, errors = process.communicate(timeout=LIMIT)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process, text, errors, started


def family(pid):
    """The processes of a session."""
    everyone = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [other for other in everyone if field_of(other, 3) == pid]


def listening(pid):
    """The addresses on which a process listens for TCP."""
    try:
        sockets = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    except (FileNotFoundError, PermissionError):
        return
    for table, size in (("tcp", 4), ("tcp6", 16)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                raw = bytes.fromhex(fields[1].split(":")[0])
                last = b"".join(raw[i : i + 4][::-1] for i in range(0, size, 4))[-4:]
                yield socket.inet_ntoa(last)


def test_a_lost_machine_costs_its_trial_one_attempt(nodes, local, tmp_path, fresh_diary):
    """The last of the tests that use the cluster: its second node is gone then."""
    notes = Notes()

    def kill():
        (node,) = nodes.worker_nodes
        raylet = node.all_processes["raylet"][0].process.pid
        until(lambda: any(parent(pid) == raylet for _, pid in diary_of(fresh_diary)))
        nodes.remove_node(node, allow_graceful=False)

    thread = elsewhere(kill)
    assert run(TOY, SLOWER, tmp_path, listener=notes, cluster=Ray()) == Summary(done=4, skipped=0, failed=0)
    thread.join()
    assert len(notes.repeated) == 1
    assert len(diary_of(fresh_diary)) == 5
    check_same(tmp_path, local, SLOWER)


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path, capsys):
    from steadygrad.paper.experiments import EXPERIMENTS

    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["run", "toy", "--engine", "ray", "--out", str(tmp_path)]) == 2
    assert "ray is not installed; a run on a Ray cluster needs it: pip install 'steadygrad[ray]'" in capsys.readouterr().err


def test_an_address_where_no_cluster_is(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setattr(session, "REACHABLE", 4.0)  # it answers the knock, and then nothing
        began = time.monotonic()
        with pytest.raises(session.ClusterError, match=r"no Ray cluster answered at '127\.0\.0\.1:\d+' within 4 s"):
            session.reach(address)
        assert time.monotonic() - began < LIMIT / 2  # Ray itself would try for two minutes
    with pytest.raises(
        session.ClusterError, match=r"no Ray cluster can be reached at .* refused. Start a cluster with `ray start"
    ):
        session.reach(address)


@pytest.mark.parametrize(
    "fields, advice",
    [
        ({"address": "there"}, "give host:port"),
        ({"address": "there:99999"}, "give host:port"),
        ({"address": "ray://there:10001"}, "ray job submit"),
        ({"cpus": -1}, "cpus is -1; it must be"),
        ({"gpus": float("nan")}, "gpus is nan"),
        ({"cpus": 0}, "both 0"),
        ({"gpus": 1.5}, "fractions of one GPU only"),
        ({"retries": -1}, "retries is -1"),
    ],
    ids=repr,
)
def test_bad_clusters_are_refused(fields, advice):
    with pytest.raises(ValueError, match=advice):
        Ray(**fields)
