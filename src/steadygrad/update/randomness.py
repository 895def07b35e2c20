"""Random draws inside F that are the same in every call of one solve."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from steadygrad.failure import SteadyStateError

Result = TypeVar("Result")
WAIT = 300.0
"""Seconds to wait for another thread's call of F: far longer than a call takes, so that a deadlock ends with an error."""
WATCHED_CALLS = 2
"""Calls that are looked at for draws. Comparing the states takes 8 µs; one is not enough, since at h = 0 F may branch."""

AGREED = 3
"""Calls of F that end in one place, running, before that is taken for its own end: a neighbour may draw as much twice."""
TRIES = 50
"""Calls of F for one that no other thread disturbs by draws of its own."""

_turn = threading.RLock()
"""torch's random state is one for all threads: who sets it, or asks whether it has moved, must be alone."""


class FrozenRandomness:
    """torch's random state at the first call of F, given back to each later one if F turns out to draw from it.

    A steady state needs an F that does not change, so dropout keeps its mask for a solve; the next solve draws anew. Outside
    of F the random state goes on as if F had been called once. Solves in several threads take turns in calling an F that
    draws. What other threads draw meanwhile without steadygrad (inputs, say) is noticed by where the random state ends, and F
    is called again; their own numbers may then come twice, as torch's random state is one for all threads.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._start: list[Tensor] | None = None
        self._end: list[Tensor] | None = None
        """Where the random state was after the last call from its start, while there are other threads."""
        self._calls = 0
        self.draws = False
        """Whether F was seen to draw."""

    @property
    def idle(self) -> bool:
        """Whether F is known not to draw, so that it may be called directly: for the innermost loop."""
        return not self.draws and self._calls >= WATCHED_CALLS

    def none_in_it(self) -> None:
        """Take note that F is known not to draw: nobody watches it any more."""
        self._calls = WATCHED_CALLS

    def call(self, function: Callable[[], Result]) -> Result:
        """`function()`, a call of F, with the draws of the first one."""
        self._calls += 1
        if self.draws:
            return self._rewound(function)
        if self._calls <= WATCHED_CALLS:
            return self._watched(function)
        return function()

    def _rewound(self, function: Callable[[], Result]) -> Result:
        _wait_for_the_turn()
        outside = self._states()
        try:
            return self._from_the_start(function)
        finally:
            self._set(outside)
            _turn.release()

    def _watched(self, function: Callable[[], Result]) -> Result:
        if not _turn.acquire(blocking=False):
            _wait_for_the_turn()
        try:
            before = self._states()
            result = function()
            after = self._states()
            if _same(before, after):
                return result
            self.draws, self._start = True, before
            if threading.active_count() == 1:
                return result
            try:
                result = self._from_the_start(function, after)
            finally:
                self._set(after)
            self.draws = self._end is None or not _same(before, self._end)  # or another thread drew, and F does not
            return result
        finally:
            _turn.release()

    def _from_the_start(self, function: Callable[[], Result], first: list[Tensor] | None = None) -> Result:
        """`function()` with the draws of the first call, which ended at `first` if it has just been made.

        Beside other threads it is called until it ends where it did before, or several times running in one other place: its
        own draws have then changed in number, while nobody else has drawn.
        """
        assert self._start is not None, "draws are only seen in a call that had a start"
        last, agreed = first, 1
        for _ in range(TRIES):
            self._set(self._start)
            result = function()
            if threading.active_count() == 1:
                return result
            now = self._states()
            agreed = agreed + 1 if last is not None and _same(last, now) else 1
            last = now
            drew_nothing = first is not None and _same(self._start, now)
            if agreed >= AGREED or drew_nothing or (self._end is not None and _same(self._end, now)):
                self._end = now
                return result
        raise SteadyStateError(
            f"F draws random numbers, and other threads drew from torch's random state during each of {TRIES} calls of F: "
            "its draws are not the same twice. Let the other threads draw from a torch.Generator of their own."
        )

    def _states(self) -> list[Tensor]:
        states = [torch.default_generator.get_state()]
        if self._cuda is not None:
            states.append(torch.cuda.get_rng_state(self._cuda))
        return states

    def _set(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        if self._cuda is not None:
            torch.cuda.set_rng_state(states[1], self._cuda)


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def _wait_for_the_turn() -> None:
    if not _turn.acquire(timeout=WAIT):
        raise SteadyStateError(
            f"F draws random numbers, and another thread's F has kept torch's random state for {WAIT:.0f} s: a solve inside F "
            "that waits for a solve in another thread cannot end. Solve in one thread, or take the random draws out of F."
        )
