"""The command line: steadygrad run | report | list."""

from steadygrad.cli.verbs import main

__all__ = ["main"]
