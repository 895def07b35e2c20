"""Which states to keep of a long run, so that it can be gone back over in little memory: counts, and where to stop.

Going back over l steps with room for s states takes steps again. If no step is taken more than r times without a graph, and once
with one, the longest run that can be gone back over is β(s, r), with β(s, 0) the steps whose graphs may be kept at once, and
β(s, r) = β(s, r−1) + β(s−1, r): what lies before the next state to be kept is gone back over last, with all room and one pass
less, what lies behind it first, with one place less.

With the graph of one step, β(s, 0) = 1, this is the binomial schedule of Griewank and Walther 2000 (Algorithm 799):
β(s, r) = C(s + r, s), and l steps take Σ_r max(0, l − β(s, r)) steps without a graph, the run itself included; none takes fewer.
Here graphs may take the room of states, since the graph of a step keeps at least the state before it: β(s, 0) = s, so
β(s, 1) = s(s + 1)/2 + 1: with √(2T) states each step is taken once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """How much of a run may be kept: `states` states, and graphs of steps, at most `graphs` at a time.

    Graphs take the room of states, unless they have room of their own (`apart`). `total` is the number of steps where it is
    known before they are taken. Without `states`, both the states and the graphs grow as the square root of the steps taken.
    """

    states: int | None
    graphs: int | None = None
    total: int | None = None
    apart: bool = False

    def leaf(self, room: int) -> int:
        """Steps whose graphs may be kept at once in that much room: β(s, 0)."""
        most = room if self.graphs is None else self.graphs
        return most if self.apart else min(room, most)

    def reach(self, room: int, repeats: int) -> int:
        """β(s, r): the longest run that so much room allows with no step taken more than r times without a graph.

        C(s+r, s) + C(s+r−1, r+1) − C(s−g+r, r+1) where graphs of at most g steps take the room of states, by the recursion.

        >>> Plan(10, graphs=1).reach(10, 4), Plan(20).reach(20, 1)
        (1001, 211)
        """
        if room < 1:
            return self.leaf(1)  # one state alone goes on by one stretch a repeat
        if self.apart:
            return self.leaf(room) * math.comb(room + repeats, room)
        cut = 0 if self.graphs is None else max(0, room - self.graphs)
        return (
            math.comb(room + repeats, room)
            + math.comb(room + repeats - 1, repeats + 1)
            - (math.comb(cut + repeats, repeats + 1) if cut else 0)
        )

    def repeats(self, length: int, room: int) -> int:
        """The smallest r with β(s, r) ≥ length."""
        found = 0
        while self.reach(room, found) < length:
            found += 1
        return found

    def steps_again(self, length: int) -> int:
        """Steps without a graph for a run of known length, the run itself up to the last state that is kept included.

        >>> Plan(10, graphs=1).steps_again(1000), Plan(10).steps_again(1000), Plan(28).steps_again(400)
        (3636, 3195, 396)
        """
        taken, ahead = 0, [(length, self.states or rooms_for(length))]
        while ahead:
            left, room = ahead.pop()
            if left <= self.leaf(room):
                continue
            if room == 1:
                taken += sum(range(left - self.leaf(1), 0, -self.leaf(1)))
                continue
            stop = self.first_stop(left, room)
            taken += stop
            ahead += [(stop, room), (left - stop, room - 1)]
        return taken

    def at_least_again(self, length: int) -> int:
        """Σ_r max(0, l − β(s, r)): what `steps_again` is with the graph of one step, and nearly otherwise, at once."""
        states = self.states or rooms_for(length)
        return sum(length - self.reach(states, r) for r in range(self.repeats(length, states)))

    def first_stop(self, length: int, room: int) -> int:
        """How many steps to go before the next state is kept, for the fewest steps in all; `room` ≥ 2, the start's included.

        Both sides take the least if β(s, r−2) ≤ m ≤ β(s, r−1) and β(s−1, r−1) ≤ l − m ≤ β(s−1, r): the largest such m.
        """
        r = self.repeats(length, room)
        return max(1, min(self.reach(room, r - 1), length - self.reach(room - 1, r - 1)))

    def stops(self) -> frozenset[int]:
        """The steps before which a state is kept, where the number of steps is known."""
        if self.total is None or self.states is None:
            return frozenset()
        found, at = [0], 0
        while (room := self.states - len(found)) > 0 and self.total - at > self.leaf(room + 1):
            at += self.first_stop(self.total - at, room + 1)
            found.append(at)
        return frozenset(found)


def rooms_for(total: int) -> int:
    """The fewest states with which each step is taken once more at most: s(s + 1)/2 + 1 ≥ T, so about √(2T).

    >>> rooms_for(400), rooms_for(1)
    (28, 1)
    """
    return max(1, math.ceil((math.sqrt(8 * total - 7) - 1) / 2))


def square_root(total: int | None) -> Plan:
    """√(2T) states, in graphs or by themselves. Where T is not known, about √T states and graphs of √T steps."""
    return Plan(None, apart=True) if total is None else Plan(rooms_for(total), total=total)


def logarithm(limit: int, total: int | None) -> Plan:
    """log₂ T states, in graphs or by themselves, T being the largest number of steps.

    >>> logarithm(1000, None)
    Plan(states=10, graphs=None, total=None, apart=False)
    """
    return Plan(max(1, math.ceil(math.log2(limit))), total=total)
