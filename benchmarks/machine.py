"""Where and with what a row was measured: machine, load, versions."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "numpy", "torchdeq", "torchopt", "xitorch", "jax", "jaxlib", "jaxopt", "optimistix", "lineax")
ROOT = Path(__file__).parents[1]


def versions() -> dict[str, str]:
    """Versions of steadygrad (with its commit) and of everything it is measured against, as far as it is installed."""
    found = {"python": platform.python_version(), "steadygrad": f"{_version('steadygrad')} {_commit()}".strip()}
    return found | {name: version for name in PACKAGES if (version := _version(name))}


def machine(threads: int) -> dict[str, Any]:
    """The processor, how many cores are free to use, the threads that were taken, and the load when the row began."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load": round(os.getloadavg()[0], 2),
        "system": platform.platform(terse=True),
    }


def processor_seconds() -> float:
    """Processor time that this process and those it has waited for took: what a row would take if nobody else were at work."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def set_threads(count: int) -> None:
    """Give this process `count` threads. Call it before torch and jax are imported: both read their settings then.

    The process is bound to as many cores, since JAX takes its threads from those and has no setting that holds everywhere.
    """
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(count)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[-count:])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _commit() -> str:
    """The last commit that changed src, with a plus where files there differ from it; nothing outside a checkout.

    Only src: results and pages change in the course of a run, and a run that was stopped must know its own rows.
    """
    try:
        commit = _git("log", "-1", "--format=%h", "--abbrev=10", "--", "src")
        return commit + ("+" if _git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    if (info := Path("/proc/cpuinfo")).exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
