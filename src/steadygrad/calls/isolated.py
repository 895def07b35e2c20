"""What a process is set to before a call, whatever ran before it in the same process."""

from __future__ import annotations

import random
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy
import torch

KEPT_WARNINGS = 20


def settle() -> None:
    """Denormals are flushed (they make the CPU 25 times slower), and torch has one thread: results do not depend on the cores."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)


def fresh_start(seed: int) -> None:
    """The random state and the defaults that a call begins with."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


@contextmanager
def collected_warnings() -> Generator[list[str]]:
    """Warnings are kept, each once: from several processes at once they would only tear up the progress bar."""
    messages: list[str] = []

    def collect(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        text = f"{category.__name__}: {message}"
        if text not in messages and len(messages) < KEPT_WARNINGS:
            messages.append(text)

    with warnings.catch_warnings():
        warnings.showwarning = collect
        yield messages
