"""How much memory this process has held at its worst moment, as the kernel saw it: libraries, data and all."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def forget_peak() -> bool:
    """Let the kernel forget the peak so far; False where it keeps none for us (not Linux, or not allowed)."""
    try:
        RESET.write_text("5")
    except OSError:
        return False
    return True


def peak_mb() -> float | None:
    """The largest resident memory since `forget_peak`, libraries included."""
    return _megabytes("VmHWM")


def held_mb() -> float | None:
    """What is resident now, after glibc has given back what was freed: else it would hide as much of what comes."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    return _megabytes("VmRSS")


def _megabytes(name: str) -> float | None:
    found = re.search(rf"{name}:\s*(\d+) kB", STATUS.read_text()) if STATUS.exists() else None
    return int(found[1]) / 1024 if found else None
