"""What happens when a solve fails: an error, or a warning that does not fill the terminal, and a record of all of them."""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, get_args

import torch

OnFailure = Literal["raise", "warn", "ignore", "fallback"]


class SteadyStateWarning(UserWarning):
    """A solve ended without what was asked for; the message says what to do.

    >>> import torch, warnings, steadygrad as sg
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", sg.SteadyStateWarning)
    ...     solution = sg.steady_state(lambda h: 2 * h + 1, torch.zeros(1))
    >>> "ended DIVERGED" in str(caught[0].message)
    True
    """


class SteadyStateError(RuntimeError):
    """A solve ended without what was asked for, or the update cannot be used.

    >>> import torch, steadygrad as sg
    >>> try:
    ...     solution = sg.steady_state(lambda h: 2 * h + 1, torch.zeros(1), on_failure="raise")
    ... except sg.SteadyStateError as error:
    ...     print(str(error).split(":")[0])
    the search for the steady state by Picard() ended DIVERGED
    """


_WAYS = get_args(OnFailure)


def check_on_failure(on_failure: str) -> None:
    """Refuse an `on_failure` that is not one of the names."""
    if on_failure not in _WAYS:
        raise ValueError(f'on_failure must be "raise", "warn", "ignore" or "fallback"; got {on_failure!r}.')


def magnitude(value: float) -> str:
    """A power of ten in words: more digits of a residual that missed its tolerance say nothing."""
    return f"about 1e{round(math.log10(value)):+03d}" if 0 < value < math.inf else str(value)


def report_failure(message: str, on_failure: OnFailure) -> None:
    """Raise, warn at the user's own line, or say nothing.

    Warnings of one kind (their text without its numbers) from one line are shown at the first, tenth, hundredth, … time, under
    Python's default filter; filters such as "always", "error" and "ignore" act as on any warning. `past_warnings()` has all.
    """
    if on_failure == "raise":
        raise SteadyStateError(message)
    if on_failure in ("warn", "fallback"):
        _warn(message, _frame_of_the_user())


@dataclass(frozen=True)
class PastWarning:
    """The warnings of one kind that came from one line of the user's code."""

    message: str
    """The text of the last one."""
    filename: str
    lineno: int
    count: int


PLACES = 1000
"""Kinds and places kept in the record; the one that was quiet for longest goes first."""

_Key = tuple[str, str, int]
_past: OrderedDict[_Key, PastWarning] = OrderedDict()
_shown_from: tuple[Any, dict[_Key, int]] = (None, {})
"""The list of filters, and the warnings since it is that list: Python forgets what it has shown where `catch_warnings` begins and
ends, by which the list changes, and the count in the text starts anew with it."""
_lock = threading.Lock()


def past_warnings() -> list[PastWarning]:
    """The warnings of this process, shown or not: one entry a kind and line, with a count and the last text.

    >>> import steadygrad as sg
    >>> all(past.count >= 1 for past in sg.past_warnings())
    True
    """
    with _lock:
        return list(_past.values())


def _warn(message: str, frame: FrameType) -> None:
    """`warnings.warn` at that frame, with a text that counts as a repetition of others of its kind."""
    filename, lineno, kind = frame.f_code.co_filename, frame.f_lineno, _kind_of(message)
    count = _counted((kind, filename, lineno), message)
    text = message if count == 1 else f"{message} (Warning {count:,} of this kind from this line.)"
    decade = len(str(count))  # a new one at 1, 10, 100, …: shown then, whatever was shown before
    warnings.warn_explicit(
        SteadyStateWarning(_OfKind(text, (kind, decade))),
        SteadyStateWarning,
        filename,
        lineno,
        module=frame.f_globals.get("__name__", "<unknown>"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _kind_of(message: str) -> str:
    """The text without its numbers."""
    return re.sub(r"\b\d[\d.,]*(e[+-]?\d+)?", "#", message)


def _counted(key: _Key, message: str) -> int:
    """Enter a warning into the record; how many of its kind its line has given under the present filters, itself included."""
    global _shown_from
    with _lock:
        total = _past[key].count + 1 if key in _past else 1
        _past[key] = PastWarning(message, filename=key[1], lineno=key[2], count=total)
        _past.move_to_end(key)
        if len(_past) > PLACES:
            _past.popitem(last=False)
        if _shown_from[0] is not warnings.filters or len(_shown_from[1]) > PLACES:
            _shown_from = (warnings.filters, {})
        counts = _shown_from[1]
        counts[key] = counts.get(key, 0) + 1
        return counts[key]


class _OfKind(str):
    """A text that equals others of its kind as a dictionary key, and is itself in every other respect.

    Python remembers which warnings it has shown by their text, in a dictionary of the module that caused them, and forgets them
    when filters change (hence in `catch_warnings` and `pytest.warns`). With such a key all of that holds for the kind.
    """

    __slots__ = ("kind",)
    kind: Any

    def __new__(cls, text: str, kind: Any) -> _OfKind:
        new = super().__new__(cls, text)
        new.kind = kind
        return new

    def __eq__(self, other: object) -> bool:
        return self.kind == other.kind if isinstance(other, _OfKind) else str.__eq__(self, other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash(self.kind)

    def __str__(self) -> str:
        return self  # str() of the warning is the key, and would else be a plain copy

    def __reduce__(self) -> Any:
        return str, (self[:],)


_NOT_THE_USER = (os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.abspath(torch.__file__)))


def _frame_of_the_user() -> FrameType:
    """The first frame outside this package and torch, or the outermost."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USER):
        frame = frame.f_back
    return frame
