"""Scripts of the tests, run by torchrun in several processes on this machine, with a time limit."""

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
LIMIT = 150
"""Seconds after which a job counts as hanging: some ten times what it takes on a busy machine."""


class Job(NamedTuple):
    """How a job ended."""

    code: int
    printed: str


ABORTED = "terminate called without an active exception"
"""What torch prints where threads of its gloo outlive the interpreter, now and then, on a busy machine: all has been done by then."""
TRIES = 3


def torchrun(script, *args, ranks=2, limit=LIMIT):
    """Run a script in so many processes on loopback; a job that takes too long is killed, and fails the test.

    A job that torch itself aborts at its end is run again.
    """
    for _ in range(TRIES):
        job = _once(script, *args, ranks=ranks, limit=limit)
        if ABORTED not in job.printed:
            break
    return job


def _once(script, *args, ranks, limit):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1",
        "--master-port", str(port), str(script), *map(str, args),
    ]  # fmt: skip
    job = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=environment()
    )
    try:
        printed, _ = job.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        printed, _ = job.communicate()
        raise AssertionError(f"{script} hung for {limit} s:\n{printed[-3000:]}") from None
    return Job(job.returncode, printed)


def environment():
    source = str(HERE.parent / "src")
    paths = [source, str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def outcomes(script, folder):
    """Run the checks of a script and read how each went on every rank: {name: [outcome of rank 0, of rank 1]}."""
    job = torchrun(script, folder)
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]
    assert job.code == 0, f"{found}\n{job.printed[-3000:]}"
    assert len(found) == 2, job.printed[-3000:]
    return {name: [one.get(name, "not reached") for one in found] for name in found[0] | found[1]}


def run_checks(checks, folder, rank):
    """Run checks one after the other, on every rank, and write how they went; after a failure the ranks are out of step."""
    went = {}
    for name, check in checks.items():
        try:
            check()
            went[name] = "ok"
        except Exception:
            went[name] = traceback.format_exc()
            break
    Path(folder, f"rank{rank}.json").write_text(json.dumps(went))


def leave():
    """End a rank whose checks are done: together, and without tearing the interpreter down.

    Threads of torch's gloo may still run then, and now and then abort the process ("terminate called without an active
    exception"), long after every check has gone well.
    """
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
