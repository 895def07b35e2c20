"""Who is told what happens in a run."""

from __future__ import annotations

from collections.abc import Sequence

from steadygrad.paper.records import Record, Stranger


class Listener:
    """Is told what happens; the command line draws its progress from it. Every method may be left as it is."""

    def begin(self, total: int, known: Sequence[Record], strangers: Sequence[Stranger]) -> None:
        """There are `total` trials, of which `known` are done already."""

    def step(self, trial: str, fraction: float, note: str) -> None:
        """A running trial is so far."""

    def again(self, trial: str, reason: str, attempt: int) -> None:
        """A trial whose worker was lost starts again; this is its `attempt`-th attempt."""

    def finished(self, record: Record) -> None:
        """A trial is done, or failed, by this run or another on the same folder."""

    def tick(self) -> None:
        """Called at least every half second."""
