"""The states that are kept of a run, and the way back over it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from steadygrad.gradient.schedule import Plan, first_stop


class Trail:
    """Some states of a run, by the step that they stand before, in at most the memory of a plan.

    Where the length of the run is known, the states are put where the binomial schedule has them. Where it is not (a solve
    that stops at its tolerance), they lie at equal distances, and each time the memory is full every other one goes and the
    distance doubles: at least half of the memory is in use at the end, and the way back divides what lies between by the
    binomial schedule, with the room that there is. For n = 10 that takes at most 1.24 times the steps of a known length up
    to T = 2,000.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.kept: list[tuple[int, Any]] = []
        self.peak = 0
        """The most states that were ever kept at once."""
        self._stops = plan.stops()
        self._distance = plan.stretch

    def wants(self, step: int) -> bool:
        """Whether the state before a step is to be kept. Makes room for it."""
        if self.plan.total is not None:
            return step in self._stops
        if step % self._distance:
            return False
        while step and len(self.kept) >= (self.plan.states or 2 * self._distance):
            self._distance *= 2
            self.kept = [entry for entry in self.kept if entry[0] % self._distance == 0]
            if step % self._distance:
                return False
        return True

    def keep(self, step: int, state: Any) -> None:
        """Keep the state before a step."""
        self.kept.append((step, state))
        self.peak = max(self.peak, len(self.kept))

    @property
    def stretch(self) -> int:
        """Steps whose graphs may be kept at once."""
        return self.plan.stretch if self.plan.states else self._distance

    def reverse(self, end: int, advance: Callable[[int, Any, int], Any], back: Callable[[int, Any, int], None]) -> None:
        """Go back from step `end` to the start.

        `advance(a, state, b)` is the state before step b, from that before step a, without graphs; `back(a, state, b)` goes
        back over the steps from a to b, at most `stretch`. Of the states only the start is left in the end, from which
        another way back may begin, with one more run.
        """
        stretch = self.stretch
        most = self.plan.states or max(len(self.kept), math.ceil(end / stretch))
        while end > 0:
            at, state = self.kept[-1]
            while end - at > stretch:
                length, room = math.ceil((end - at) / stretch), most - len(self.kept)
                to = at + stretch * (first_stop(length, room + 1) if room > 0 else length - 1)
                state = advance(at, state, to)
                at = to
                if room > 0:
                    self.keep(at, state)
            back(at, state, end)
            end = at
            if at > 0 and self.kept[-1][0] == at:
                self.kept.pop()
