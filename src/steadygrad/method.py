"""What all methods share: they are frozen dataclasses whose repr pastes back as code."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Collection
from dataclasses import MISSING, fields
from typing import Any

import torch


class Method:
    """A method with its settings. Its repr names what differs from the defaults: `NormalCG(steps=20)`.

    The methods of this package hold nothing but settings, so `torch.load(..., weights_only=True)` may rebuild them: checkpoints
    that store a model's hyperparameters, as Lightning's `save_hyperparameters()` does, can be resumed.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith("steadygrad."):
            torch.serialization.add_safe_globals([cls])

    def __repr__(self) -> str:
        settings: list[str] = []
        for field in fields(self):  # pyright: ignore[reportArgumentType]
            value: Any = getattr(self, field.name)
            if field.default is MISSING:
                settings.append(repr(value))
            elif value != field.default:
                settings.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(settings)})"


def check_callable(name: str, value: object, call: str = "") -> None:
    """Refuse what cannot be called; `call` shows how it will be."""
    if not callable(value):
        raise TypeError(f"{name} must be callable{call and f' as {call}'}; got {type(value).__name__}.")


def unknown(what: str, name: str, known: Collection[str]) -> ValueError:
    """The error for a name that is none of those known: with the nearest of them, and the list.

    >>> unknown("gradient", "rpb", ["rbp", "bptt"])
    ValueError("unknown gradient 'rpb'. Did you mean 'rbp'? Known: rbp, bptt.")
    """
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ValueError(f"unknown {what} {name!r}.{hint} Known: {', '.join(known)}.")


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number; got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}.")


def check_number(name: str, value: object, least: float = -math.inf, below: float = math.inf, above: float = -math.inf) -> None:
    """Refuse what is not a finite number with `least` ≤ value < `below` and value > `above`.

    Strings, booleans, tensors, nan and inf are refused: a comparison with nan is False, so that a tolerance of nan would
    otherwise pass every check and never be met.
    """
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, (int, numbers.Real))):  # numpy's are Real
        raise TypeError(f"{name} must be a number; got {value!r}.")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite; got {value}.")
    if number < least:
        if least == 0:
            raise ValueError(f"{name} must not be negative; got {value}.")
        raise ValueError(f"{name} must be at least {least:g}; got {value}.")
    if number <= above:
        raise ValueError(f"{name} must be above {above:g}; got {value}.")
    if number >= below:
        raise ValueError(f"{name} must be below {below:g}; got {value}.")
