"""The global random generators: what they hold, to be put back later, here or in another process."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch


def random_states() -> dict[str, Any]:
    """The states of torch's, Python's and numpy's global generators, in what `torch.load` reads without running code."""
    state: Any = numpy.random.get_state(legacy=True)
    kind, keys, *rest = state
    states = {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": [kind, keys.tolist(), *rest]}
    return {**states, "cuda": torch.cuda.get_rng_state_all()} if torch.cuda.is_available() else states


def restore_random_states(states: dict[str, Any]) -> None:
    """Put back what `random_states` gave."""
    torch.set_rng_state(states["torch"])
    version, numbers, extra = states["python"]
    random.setstate((version, tuple(numbers), extra))
    numpy.random.set_state(tuple(states["numpy"]))
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])
