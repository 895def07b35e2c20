"""What happens inside a worker: one call, and what comes of it as bytes."""

from __future__ import annotations

import os
import pickle
import threading
import traceback
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from steadygrad.calls.call import Raised, Returned, Said, Say
from steadygrad.calls.isolated import settle


def perform(packed: bytes, say: Say) -> bytes:
    """Make the call that was pickled as (function, arguments); Returned or Raised, pickled.

    Whatever goes wrong is Raised: an import that fails here, the call itself, a value that cannot be pickled.
    Bytes are plain pickle, so that tensors arrive as copies: no worker has to live until they are read.
    """
    settle()
    try:
        function, arguments = pickle.loads(packed)
        return pickle.dumps(Returned(function(say, *arguments)))
    except BaseException:
        return pickle.dumps(Raised(traceback.format_exc()))


def work(connection: Connection) -> None:
    """A worker process on this machine: calls until the connection ends."""
    threading.Thread(target=end_with_parent, daemon=True).start()

    def say(message: Any) -> None:
        send(connection, pickle.dumps(Said(message)))

    while True:
        try:
            packed = connection.recv_bytes()
        except (EOFError, OSError):  # the parent has closed its end, or is gone
            return
        send(connection, perform(packed, say))


def end_with_parent() -> None:
    """A parent that was killed cannot stop its workers: they wait for its end themselves."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def send(connection: Connection, message: bytes) -> None:
    """A parent that does not listen any more is gone, and nobody waits for the rest."""
    try:
        connection.send_bytes(message)
    except OSError:
        os._exit(1)
