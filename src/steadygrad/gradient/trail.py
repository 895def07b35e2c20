"""The states that are kept of a run, and the way back over it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from steadygrad.gradient.schedule import Plan

SPARE = 2
"""Places that stay free while states are thinned out: without any the last stretch, which is gone back over first, would have to
do without. Counted for 2 to 30 states and 12 to 2,000 steps: at most 1.30 times the evaluations of F that a known length
takes (with three states; 1.21 with others), 1.1 on the average; with no place spare up to 6."""


class Trail:
    """Some states of a run, by the step that they stand before, in at most the memory of a plan.

    Where the length of the run is known, the states are put where the schedule has them. Where it is not (a solve that stops at
    its tolerance), they lie at equal distances, and each time the memory is full, but for `SPARE` places, every other one
    goes and the distance doubles; the way back divides what lies between by the schedule, with the room that there is.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.kept: list[tuple[int, Any]] = []
        self.peak = 0
        """The most states that were ever kept at once."""
        self._stops = plan.stops()
        self._distance = 1

    def wants(self, step: int) -> bool:
        """Whether the state before a step is to be kept. Makes room for it."""
        if self.plan.total is not None:
            return step in self._stops
        if step % self._distance:
            return False
        most = 2 * self._distance if self.plan.states is None else max(1, self.plan.states - SPARE)
        while step and len(self.kept) >= most:
            self._distance *= 2
            self.kept = [entry for entry in self.kept if entry[0] % self._distance == 0]
            most = 2 * self._distance if self.plan.states is None else most
            if step % self._distance:
                return False
        return True

    def keep(self, step: int, state: Any) -> None:
        """Keep the state before a step."""
        self.kept.append((step, state))
        self.peak = max(self.peak, len(self.kept))

    def reverse(self, end: int, advance: Callable[[int, Any, int], Any], back: Callable[[int, Any, int], None]) -> None:
        """Go back from step `end` to the start.

        `advance(a, state, b)` is the state before step b, from that before step a, without graphs; `back(a, state, b)` goes
        back over the steps from a to b. Of the states only the start is left in the end, from which another way back may
        begin, with one more run.
        """
        plan = self._on_the_way_back(end)
        most = plan.states or 1
        while end > 0:
            at, state = self.kept[-1]
            while end - at > plan.leaf(room := most - len(self.kept) + 1):  # the start of this stretch has its place already
                if room == 1:
                    state, at = advance(at, state, end - plan.leaf(1)), end - plan.leaf(1)
                    break
                to = at + plan.first_stop(end - at, room)
                state, at = advance(at, state, to), to
                self.keep(at, state)
            back(at, state, end)
            end = at
            if at > 0 and self.kept[-1][0] == at:
                self.kept.pop()

    def _on_the_way_back(self, end: int) -> Plan:
        """The plan with its numbers filled in, where these grew with the steps."""
        if self.plan.states is not None:
            return self.plan
        return Plan(max(len(self.kept), math.ceil(end / self._distance)), self._distance, apart=True)
