"""Numbers and times as a reader wants them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any


def number(value: Any) -> str:
    """Four significant digits; thousands grouped; NaN and infinities named; everything that is no number as it is.

    >>> number(0.123456), number(12345), number(1.5e-7), number(True), number(float("nan"))
    ('0.1235', '12,345', '1.5e-07', 'yes', 'NaN')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value.is_integer() and abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:,.4g}"


def short(value: float | None) -> str:
    """Three significant digits; very small and very large ones as powers of ten.

    >>> short(0.12345), short(0.00012345), short(None)
    ('0.123', '1.2e-04', '–')
    """
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{value:.1e}" if value and not 1e-3 <= abs(value) < 1e5 else number(float(f"{value:.3g}"))


def percent(share: float) -> str:
    """
    >>> percent(0.995), percent(1)
    ('99.5 %', '100 %')
    """
    return f"{100 * share:.3g} %"


def rough(share: float) -> str:
    """
    >>> rough(0.06666), rough(0.995)
    ('6.7 %', '99 %')
    """
    return percent(float(f"{share:.2g}"))


def share(value: float) -> str:
    """A share to two digits.

    >>> share(0.0597), share(1.338)
    ('6 %', '134 %')
    """
    return f"{100 * value:.2g} %" if value < 0.995 else f"{100 * value:.0f} %"


def duration(seconds: float) -> str:
    """
    >>> duration(0.42), duration(75), duration(3700)
    ('0.4 s', '1 min 15 s', '1 h 2 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def plural(count: int, word: str) -> str:
    """
    >>> plural(1, "trial"), plural(2012, "trial"), plural(0, "trial")
    ('1 trial', '2,012 trials', 'no trials')
    """
    return f"{f'{count:,}' if count else 'no'} {word}{'' if count == 1 else 's'}"


def is_number(cell: str) -> bool:
    """Whether a cell belongs into a column of numbers: "12,345", "46.63 ± 8.3", "99 %", "1.5e-07", "3.1 s", "3 of 4", "–".

    >>> is_number("46.63 ± 8.3"), is_number("RBP")
    (True, False)
    """
    digits = r"[+−-]?\d[\d,]*(\.\d+)?(e[+−-]?\d+)?"
    return bool(re.fullmatch(rf"[<>≈~≤≥]? ?{digits}( ?(±|of|/) ?{digits})?( ?(%|s|ms|min|MB|kB|GB|×))?|–|NaN|−?∞|", cell.strip()))


def tied(text: str) -> str:
    """The text with every number tied to its unit, so that no line breaks between them.

    >>> tied("1 % of K = 20 steps")
    '1\\xa0% of K\\xa0=\\xa020 steps'
    """
    return re.sub(r" (?==)|(?<==) | (?=±)|(?<=±) |(?<=\d) (?=(?:%|s|ms|min|h|MB|kB|GB)(?!\w))", "\u00a0", text)


NO_BREAK = "\u00a0"


def times(value: float) -> str:
    """
    >>> times(6.43)
    '6.43 times'
    """
    return f"{number(float(f'{value:.3g}'))} times"


def strokes(values: Sequence[float | None] | float | None, digits: int = 2) -> str:
    """
    >>> strokes([0.123, 4.56])
    '0.12 / 4.6'
    """
    several = values if isinstance(values, Iterable) else [values]
    return " / ".join(number(None if value is None else float(f"{value:.{digits}g}")) for value in several)


def unbroken(text: str) -> str:
    """The text in one line."""
    return text.replace(" ", NO_BREAK)


def span(values: Sequence[float]) -> str:
    """
    >>> span([2.0, 0.5]), span([0.5])
    ('0.5 to 2', '0.5')
    """
    low, high = short(min(values)), short(max(values))
    return low if low == high else f"{low} to {high}"
