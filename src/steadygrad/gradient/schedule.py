"""Which states to keep of a long run, so that it can be gone back over in little memory: counts, and where to stop.

Reversing l steps with s states (the start is one of them) takes the steps of the run again, some of them often. With every
step taken at most r times without a graph, and once with one, C(s + r, s) steps can be reversed, and none more: Griewank and
Walther 2000 (Algorithm 799), whose schedule this is. With ten states, a thousand steps need r = 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def reach(states: int, repeats: int) -> int:
    """The longest run, C(s + r, s), that s states reverse with no step taken more than r times without a graph.

    >>> reach(10, 4), reach(1, 5)
    (1001, 6)
    """
    return math.comb(states + repeats, states) if repeats >= 0 else 0


def repeats(length: int, states: int) -> int:
    """The smallest r with which `states` states reverse so many steps.

    >>> repeats(1000, 10), repeats(1, 3)
    (4, 0)
    """
    found = 0
    while reach(states, found) < length:
        found += 1
    return found


def steps_again(length: int, states: int) -> int:
    """Steps without a graph that a run of known length takes, the run itself included: r·l − C(s + r, r − 1).

    >>> steps_again(1000, 10), steps_again(6, 1)
    (3636, 15)
    """
    r = repeats(length, states)
    return r * length - (math.comb(states + r, r - 1) if r else 0)


def first_stop(length: int, states: int) -> int:
    """How many steps to go before the next state is kept, for the fewest steps in all: 0 < m < length, `states` ≥ 2.

    What lies behind is reversed last, with all states; what lies ahead first, with one less. Both take the least if
    C(s + r − 2, s) ≤ m ≤ C(s + r − 1, s) and C(s + r − 2, s − 1) ≤ l − m ≤ C(s + r − 1, s − 1): the largest such m.
    """
    r = repeats(length, states)
    return max(1, min(reach(states, r - 1), length - reach(states - 1, r - 1)))


@dataclass(frozen=True)
class Plan:
    """How much of a run may be kept: at most `states` states, and the graphs of `stretch` steps at a time.

    `total` is the number of steps where it is known before they are taken. Without it, and without `states`, both the states
    and the stretch grow as the square root of the steps taken.
    """

    states: int | None
    stretch: int = 1
    total: int | None = None

    def stops(self) -> frozenset[int]:
        """The steps before which a state is kept, where the number of steps is known."""
        if self.total is None:
            return frozenset()
        found, at = [0], 0
        while (room := (self.states or 1) - len(found)) > 0 and self.total - at > self.stretch:
            at += self.stretch * first_stop(math.ceil((self.total - at) / self.stretch), room + 1)
            found.append(at)
        return frozenset(found)

    def steps_again(self, total: int) -> int:
        """Steps taken without a graph in all, the run itself included, had its length been known: the least for this memory."""
        states = self.states or math.ceil(math.sqrt(total))
        stretch = self.stretch if self.states else math.ceil(total / states)
        return stretch * steps_again(math.ceil(total / stretch), states)


def square_root(total: int | None) -> Plan:
    """√T states and graphs of √T steps: every step is taken once more, and no more than that.

    >>> square_root(400)
    Plan(states=20, stretch=20, total=400)
    """
    if total is None:
        return Plan(states=None)
    states = math.ceil(math.sqrt(total))
    return Plan(states, math.ceil(total / states), total)


def logarithm(limit: int, total: int | None) -> Plan:
    """log₂ T states and graphs of as many steps, T being the largest number of steps.

    >>> logarithm(1000, None)
    Plan(states=10, stretch=10, total=None)
    """
    states = max(1, math.ceil(math.log2(limit)))
    return Plan(states, states, total)
