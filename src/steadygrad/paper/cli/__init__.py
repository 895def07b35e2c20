"""The command line: steadygrad run | report | list."""

from steadygrad.paper.cli.verbs import main

__all__ = ["main"]
