"""Run trials in worker processes, here or on a Ray cluster; one record a trial."""

from steadygrad.paper.engine.listener import Listener
from steadygrad.paper.engine.run import Summary, run

__all__ = ["Listener", "Summary", "run"]
