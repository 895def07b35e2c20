"""Which crew: processes here, or a Ray cluster."""

from __future__ import annotations

from steadygrad.calls.call import Crew
from steadygrad.calls.local import LocalCrew, cores
from steadygrad.calls.ray import Ray, RayCrew


def crew(workers: int | None, cluster: Ray | None) -> Crew:
    """Workers for calls: processes on this machine, or on a Ray cluster; at most `workers` calls at a time.

    Without a number these are as many as this machine has cores, or as many as the cluster takes.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}; at least one process must do the work.")
    if cluster is not None:
        return RayCrew(cluster, workers)
    return LocalCrew(cores() if workers is None else workers)
