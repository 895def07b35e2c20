"""What all methods share: they are frozen dataclasses whose repr pastes back as code."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from typing import Any


class Method:
    """A method with its settings. Its repr names what differs from the defaults: `NormalCG(steps=20)`."""

    def __repr__(self) -> str:
        settings: list[str] = []
        for field in fields(self):  # pyright: ignore[reportArgumentType]
            value: Any = getattr(self, field.name)
            if field.default is MISSING:
                settings.append(repr(value))
            elif value != field.default:
                settings.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(settings)})"


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number; got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}.")


def check_number(name: str, value: object) -> None:
    """Refuse what is no finite real number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number; got {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite; got {value}.")
