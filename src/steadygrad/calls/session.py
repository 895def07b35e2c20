"""A connection to Ray: to the caller's own, to a cluster, or to one that is started on this machine for the time."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from steadygrad.calls.processes import ONE_THREAD, variables

REACHABLE = 60.0
"""Seconds in which a cluster must answer. Ray itself tries for two minutes, and nothing stops it meanwhile."""
STORE = 128 * 2**20
"""Bytes of shared memory for what calls return. What is more goes to the disk; Ray's own choice is a third of the memory."""
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray turns 127.0.0.1 into an address that others can reach, unless this (what it does on a Mac anyway) forbids it."""
SILENT = {"RAY_USAGE_STATS_ENABLED": "0"}
"""A Ray that is started here reports to nobody. Of a cluster, whoever started it has decided."""


PREFIX = "sg-ray-"
"""How the name of the folder begins in which a Ray that is started here has its logs and sockets."""


class ClusterError(ConnectionError):
    """A Ray cluster that cannot be reached, is lost, or has not what is asked of it."""


def imported() -> Any:
    """Ray; it takes more than a second, so nobody imports it who does not use it."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        missing = "ray is not installed; a run on a Ray cluster needs it: pip install 'steadygrad[ray]'"
        raise ModuleNotFoundError(missing, name="ray") from error


@contextmanager
def connected(address: str | None, cores: int) -> Generator[tuple[Any, bool]]:
    """Ray, connected, and whether it is one that was started here for the time, with that many cores.

    A connection that the caller has is used and left as it is. Without an address the variable RAY_ADDRESS counts, which Ray sets
    for the jobs that are submitted to a cluster; without that a Ray of one node is started on this machine, on 127.0.0.1.
    """
    loaded = sys.modules.get("ray")
    if loaded is not None and loaded.is_initialized():
        check_own(loaded, address)
        yield loaded, False
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        with started_here(cores) as ray:
            yield ray, True
        return
    ray = imported()
    check_address(address)
    reach(address)
    ray.init(address=address, log_to_driver=False, logging_level="error")
    try:
        yield ray, False
    finally:
        ray.shutdown()


def check_own(ray: Any, address: str | None) -> None:
    own = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", own):
        raise ValueError(f"address is {address!r}, but this process is connected to Ray at {own!r}; ray.shutdown() ends that.")


@contextmanager
def started_here(cores: int) -> Generator[Any]:
    """A Ray of one node that listens on the loopback interface alone and leaves nothing on the disk."""
    importable = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with temporary_folder() as folder:
        with variables(ON_LOOPBACK | SILENT | ONE_THREAD | importable):
            ray = imported()
            context = ray.init(
                address="local",
                num_cpus=cores,
                include_dashboard=False,
                object_store_memory=STORE,
                log_to_driver=False,
                logging_level="error",
                _node_ip_address="127.0.0.1",
                _temp_dir=folder,
            )
        try:
            check_hidden(context.address_info["node_ip_address"])
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def temporary_folder() -> Generator[str]:
    """A folder for Ray's logs and sockets, whose paths must be short. A process that is still ending may write one more log."""
    with tempfile.TemporaryDirectory(
        prefix=f"{PREFIX}{os.getpid()}-", dir="/tmp" if os.path.isdir("/tmp") else None, ignore_cleanup_errors=True
    ) as folder:
        yield folder


def check_hidden(ip: str) -> None:
    """Others shall not reach a Ray that nobody asked to open: whoever can connect to it can run code."""
    if ip == "127.0.0.1":
        return
    setting = " ".join("=".join(item) for item in ON_LOOPBACK.items())
    raise RuntimeError(
        f"Ray would listen on {ip}, where others can connect, since ray was imported before. Call ray.init() yourself, or set "
        f"{setting} before ray is imported."
    )


def reach(address: str) -> None:
    """ClusterError where no Ray cluster answers at the address, in time and with the reason."""
    advice = "Start a cluster with `ray start --head`, and give its host:port, or auto on a machine of the cluster."
    if address != "auto":
        knock(address, advice)
    # Ray cannot be stopped while it tries, so another process tries first.
    code = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='error'); ray.shutdown()"
    try:
        tried = subprocess.run(
            [sys.executable, "-c", code, address], capture_output=True, text=True, timeout=REACHABLE, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"no Ray cluster answered at {address!r} within {REACHABLE:.0f} s. {advice}") from None
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]
        raise ClusterError(f"the Ray cluster at {address!r} cannot be used: {reason}. {advice}")


def knock(address: str, advice: str) -> None:
    """Whether anybody listens there at all, which is known at once where a machine is up."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHABLE / 4).close()
    except OSError as error:
        raise ClusterError(f"no Ray cluster can be reached at {address!r}: {error}. {advice}") from None


def check_address(address: str) -> None:
    """ValueError for what is no address of a cluster."""
    if "://" in address:
        raise ValueError(
            f"address is {address!r}; give the host:port of the cluster's head, or auto, on a machine of the cluster "
            "(through the Ray client nothing was tested; `ray job submit` takes a command there)."
        )
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdigit() and 0 < int(port) < 2**16):
        raise ValueError(f"address is {address!r}; give host:port, such as 10.0.0.1:6379, or auto.")
