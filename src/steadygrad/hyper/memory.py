"""What the graph of a training step takes in memory, and how much there is."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from steadygrad.state.tree import tensors_in

SHARE = 0.5
"""The part of the free memory that graphs may take: the rest is for the data, the objective and whatever else is running."""
UNKNOWN = 2**30
"""Bytes that graphs may take where the system does not say what is free."""
NO_LIMIT = "max"
"""What a control group says that has no limit."""


class Kept(TorchDispatchMode):
    """Counts the bytes of tensors that are made inside it and still alive when asked: what a graph keeps.

    Every storage that an operation returns is held by a weak reference, so that it is counted once, however many views
    share it, and no longer than something else keeps it. On all devices; a few microseconds an operation.

    >>> with Kept() as kept:
    ...     a = torch.ones(256, dtype=torch.float32).exp()
    >>> kept.bytes()
    1024
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch loads its compiler, in seconds, to keep it from a function that nobody compiles

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tensors_in(made):
            if tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                reference = StorageWeakRef(storage)
                self._made[reference.cdata] = reference, storage.nbytes()
        return made

    def bytes(self) -> int:
        """What is alive now of all that was made."""
        return sum(size for reference, size in self._made.values() if not reference.expired())


def check_memory(memory: object) -> None:
    """Refuse what is no positive number of bytes; None stands for what `allowed` finds."""
    if memory is None:
        return
    if isinstance(memory, bool) or not isinstance(memory, (int, float)):
        raise TypeError(f"memory is a number of bytes, such as 2e9, or None; got {memory!r:.60}.")
    if not memory > 0:
        raise ValueError(f"memory must be positive; got {memory}.")


def allowed(memory: float | None, device: torch.device) -> float:
    """The bytes that graphs may take: as given, or half of what is free on the device now."""
    if memory is not None:
        return float(memory)
    free = _free_on_cuda(device) if device.type == "cuda" else min(_free_on_host(), default=None)
    return UNKNOWN if free is None else SHARE * free


def _free_on_cuda(device: torch.device) -> float:
    own = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch has it, and nothing in it
    return torch.cuda.mem_get_info(device)[0] + own


def _free_on_host() -> Iterator[float]:
    """The bytes that the system, and the control group of this process, say are free; nothing where neither does."""
    yield from _of_linux()
    yield from _of_control_group(Path("/sys/fs/cgroup"))
    names = ("SC_AVPHYS_PAGES", "SC_PAGE_SIZE")
    if not Path("/proc/meminfo").exists() and all(name in getattr(os, "sysconf_names", {}) for name in names):
        yield math.prod(os.sysconf(name) for name in names)


def _of_linux() -> Iterator[float]:
    found = Path("/proc/meminfo")
    if found.exists():
        fields = dict(line.split(":", 1) for line in found.read_text().splitlines() if ":" in line)
        if "MemAvailable" in fields:
            yield 1024.0 * int(fields["MemAvailable"].split()[0])


def _of_control_group(folder: Path) -> Iterator[float]:
    """What a container's limit leaves. Pages of files that nobody uses count as free, since the system takes them back."""
    limit, used, details = (folder / name for name in ("memory.max", "memory.current", "memory.stat"))
    if not (limit.exists() and used.exists()) or (most := limit.read_text().strip()) == NO_LIMIT:
        return
    pairs = (line.split() for line in details.read_text().splitlines()) if details.exists() else ()
    idle = sum(int(size) for name, size in pairs if name == "inactive_file")
    yield max(0.0, float(int(most) - int(used.read_text()) + idle))


def readable(size: float) -> str:
    """A number of bytes in words.

    >>> readable(34e6), readable(800)
    ('34 MB', '800 bytes')
    """
    for unit, many in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= many:
            return f"{size / many:.2g} {unit}" if size < 10 * many else f"{size / many:.0f} {unit}"
    return f"{size:.0f} bytes"
