"""Run independent calls of functions, in processes on this machine or on a Ray cluster."""

from steadygrad.calls.call import Again, Began, Call, Crew, Event, Lost, Raised, Returned, Said
from steadygrad.calls.crew import crew
from steadygrad.calls.folder import Folder
from steadygrad.calls.isolated import collected_warnings, fresh_start
from steadygrad.calls.local import cores
from steadygrad.calls.ray import Ray

__all__ = [
    "Again",
    "Began",
    "Call",
    "Crew",
    "Event",
    "Folder",
    "Lost",
    "Raised",
    "Ray",
    "Returned",
    "Said",
    "collected_warnings",
    "cores",
    "crew",
    "fresh_start",
]
