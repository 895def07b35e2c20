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

_turn = threading.RLock()
"""torch's random state is one for all threads: who sets it, or asks whether it has moved, must be alone."""


class FrozenRandomness:
    """torch's random state at the first call of F, given back to each later one if F turns out to draw from it.

    A steady state needs an F that does not change, so dropout keeps its mask for a solve; the next solve draws anew. Outside
    of F the random state goes on as if F had been called once. Solves in several threads take turns in calling an F that
    draws; threads that draw without steadygrad, at the same time, are not known to it and spoil the draws.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._start: list[Tensor] | None = None
        self._calls = 0
        self.draws = False
        """Whether F was seen to draw."""

    @property
    def idle(self) -> bool:
        """Whether F is known not to draw, so that it may be called directly: for the innermost loop."""
        return not self.draws and self._calls >= WATCHED_CALLS

    def call(self, function: Callable[[], Result]) -> Result:
        """`function()`, a call of F, with the draws of the first one."""
        self._calls += 1
        if self.draws:
            return self._rewound(function)
        if self._calls <= WATCHED_CALLS:
            return self._watched(function)
        return function()

    def _rewound(self, function: Callable[[], Result]) -> Result:
        assert self._start is not None, "draws are only seen in a call that had a start"
        _wait_for_the_turn()
        outside = self._states()
        try:
            self._set(self._start)
            return function()
        finally:
            self._set(outside)
            _turn.release()

    def _watched(self, function: Callable[[], Result]) -> Result:
        _wait_for_the_turn()
        try:
            before = self._states()
            result = function()
            if not all(torch.equal(a, b) for a, b in zip(before, self._states(), strict=True)):
                self.draws = True
                self._start = before
            return result
        finally:
            _turn.release()

    def _states(self) -> list[Tensor]:
        states = [torch.get_rng_state()]
        if self._cuda is not None:
            states.append(torch.cuda.get_rng_state(self._cuda))
        return states

    def _set(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        if self._cuda is not None:
            torch.cuda.set_rng_state(states[1], self._cuda)


def _wait_for_the_turn() -> None:
    if not _turn.acquire(timeout=WAIT):
        raise SteadyStateError(
            f"F draws random numbers, and another thread's F has kept torch's random state for {WAIT:.0f} s: a solve inside F "
            "that waits for a solve in another thread cannot end. Solve in one thread, or take the random draws out of F."
        )
