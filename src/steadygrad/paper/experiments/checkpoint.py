"""How far a trial is, in a file of its own: a trial that was killed goes on instead of starting again."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from steadygrad.calls.generators import random_states, restore_random_states
from steadygrad.files import write_atomically

FORMAT = "steadygrad trial checkpoint 1"
EVERY = 60.0
"""Seconds between two saves. The largest, 54 MB of the Hopfield network, takes 0.1 to 0.3 s; a kill costs at most this minute."""
State = dict[str, Any]


class Checkpoint:
    """A file to which a trial saves itself now and then, with the state of all random generators.

    The state is of tensors, numbers, strings, lists and dicts, so that no code in the file is run when it is read. A trial that
    goes on from it must end with the same result, bit for bit; hence it saves only at places from which its loop can begin.
    Without a path nothing is kept.
    """

    def __init__(self, path: Path | None = None, every: float = EVERY) -> None:
        self.path, self.every = path, every
        self.last = time.monotonic()

    def load(self) -> State | None:
        """What was saved, with the random generators as they were then; None where nothing was. A broken file is not used."""
        if self.path is None or not self.path.exists():
            return None
        try:
            content: Any = torch.load(self.path, weights_only=True)
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}")
            restore_random_states(content["random"])
        except Exception as error:  # torch raises a RuntimeError, an UnpicklingError or an EOFError, as the file may be
            warnings.warn(f"{self.path} is no checkpoint of this version, the trial starts again: {error}", stacklevel=2)
            return None
        return content["state"]

    def save(self, state: Callable[[], State]) -> None:
        """Save, unless the last time is less than `every` seconds ago."""
        if self.path is None or time.monotonic() - self.last < self.every:
            return
        file = io.BytesIO()
        torch.save({"format": FORMAT, "random": random_states(), "state": state()}, file)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, file.getvalue())
        self.last = time.monotonic()

    def remove(self) -> None:
        """The trial has ended."""
        if self.path is None or not self.path.parent.exists():
            return
        for path in self.path.parent.glob(f"*{self.path.stem}*"):
            path.unlink(missing_ok=True)
        if not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()


NOT_KEPT = Checkpoint()
