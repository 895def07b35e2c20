"""Run trials in local worker processes, one record a trial."""

from steadygrad.paper.engine.local import Listener, Summary, cores, run

__all__ = ["Listener", "Summary", "cores", "run"]
