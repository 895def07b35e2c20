"""Worker processes, seen from their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from steadygrad.paper.engine.environment import environment
from steadygrad.paper.engine.worker import work

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PATIENCE = 10.0  # seconds that an idle worker has for its end


@dataclass
class Process:
    """A worker process and our end of the pipe to it."""

    process: BaseProcess
    pipe: Connection
    began: float = 0.0

    def give(self, task: Any) -> None:
        self.began = time.time()
        try:
            self.pipe.send(task)
        except OSError:  # it died just now: whoever waits for it hears of that
            return

    def receive(self) -> list[Any] | None:
        """The messages that have come; None when the process has died and nothing is left to read."""
        messages: list[Any] = []
        ended = not self.process.is_alive()  # asked first: what it sent before its death is in the pipe by then
        try:
            while self.pipe.poll():
                messages.append(self.pipe.recv())
        except (EOFError, OSError):
            ended = True
        return messages if messages or not ended else None

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

    def obituary(self) -> tuple[str, dict[str, Any]]:
        """Why the process has died, and what is known of the time that its last task took."""
        code = self.process.exitcode
        how = f"was ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with exit code {code}"
        error = (
            f"The worker process {how} while this trial ran. The kernel sends SIGKILL when memory runs out: "
            "try fewer --workers. Start the run again to try the trial again."
        )
        started = datetime.fromtimestamp(self.began, UTC).isoformat(timespec="seconds")
        return error, {"started": started, "seconds": time.time() - self.began}


def spawn(out: Path) -> Process:
    """A fresh process: nothing of this one's threads, locks or random state goes into it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(out, environment(), theirs), name="steadygrad-worker")
    process.start()
    theirs.close()
    return Process(process, ours)


@contextmanager
def quiet_start() -> Generator[None]:
    """Processes started here have one thread a numerical library, and never see Ctrl-C: their parent does, and ends them."""
    resource_tracker.ensure_running()  # it unblocks SIGINT when it starts, so before
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
