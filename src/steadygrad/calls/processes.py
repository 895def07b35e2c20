"""Worker processes on this machine, seen from their parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from steadygrad.calls.call import Event
from steadygrad.calls.worker import work

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PATIENCE = 10.0  # seconds that an idle worker has for its end


@dataclass
class Process:
    """A worker process and our end of the pipe to it."""

    process: BaseProcess
    pipe: Connection

    def give(self, packed: bytes) -> None:
        try:
            self.pipe.send_bytes(packed)
        except OSError:  # it died just now: whoever waits for it hears of that
            return

    def receive(self) -> list[Event] | None:
        """What has come; None when the process has died and nothing is left to read."""
        events: list[Event] = []
        ended = not self.process.is_alive()  # asked first: what it sent before its death is in the pipe by then
        try:
            while self.pipe.poll():
                events.append(pickle.loads(self.pipe.recv_bytes()))
        except (EOFError, OSError):
            ended = True
        return events if events or not ended else None

    def stop(self, kill: bool) -> None:
        """Close the pipe, at whose end an idle worker ends by itself; one at work must be killed."""
        self.pipe.close()
        if kill:
            self.process.kill()

    def join(self) -> None:
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def obituary(self) -> str:
        """Why the process has died."""
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"The worker process was ended by {signal.Signals(-code).name}"
        return f"The worker process ended with exit code {code}"


def spawn() -> Process:
    """A fresh process: nothing of this one's threads, locks or random state goes into it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs,), name="steadygrad-worker")
    process.start()
    theirs.close()
    return Process(process, ours)


@contextmanager
def variables(values: dict[str, str]) -> Generator[None]:
    """Environment variables that hold for a time, and for the processes started in it."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def quiet_start() -> Generator[None]:
    """Processes started here have one thread a numerical library, and never see Ctrl-C: their parent does, and ends them."""
    resource_tracker.ensure_running()  # it unblocks SIGINT when it starts, so before
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with variables(ONE_THREAD):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
