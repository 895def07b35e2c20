"""On what a trial ran."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


@functools.cache
def environment() -> dict[str, Any]:
    """Versions, machine, and the commit where steadygrad is run from its repository."""
    return {
        "steadygrad": version("steadygrad"),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.platform(),
        "cpu": cpu(),
        "cores": os.cpu_count(),
    }


def cpu() -> str:
    listing = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", listing.read_text()) if listing.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the repository that this file belongs to, with "+" where files differ from it; None without one."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
