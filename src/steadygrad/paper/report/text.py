"""Numbers and times as a reader wants them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

NO_BREAK = "\u00a0"
DIGITS = r"[+−-]?\d[\d,]*(\.\d+)?(e[+−-]?\d+)?"
CELL = re.compile(rf"[<>≈~≤≥]? ?{DIGITS}( ?(±|of|/) ?{DIGITS})?( ?(%|s|ms|min|MB|kB|GB|×))?|–|NaN|−?∞|")
TIES = re.compile(r"<(pre|style|code)\b.*?</\1>| (?==)|(?<==) | (?=±)|(?<=±) |(?<=\d) (?=(?:%|s|ms|min|h|MB|kB|GB)(?!\w))", re.S)


def number(value: Any) -> str:
    """Four significant digits; thousands grouped; NaN and infinities named; everything that is no number as it is."""
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e6 else f"{value:,.4g}"


def short(value: float | None) -> str:
    """Three significant digits, 0.123; very small and very large ones as powers of ten, 1.2e-04."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{value:.1e}" if value and not 1e-3 <= abs(value) < 1e5 else number(float(f"{value:.3g}"))


def percent(share: float | None) -> str:
    """A share to three digits: 99.5 %."""
    return number(None) if share is None else f"{100 * share:.3g} %"


def rough(value: float) -> str:
    """A share to two digits, or to whole percents from one on: 6.7 %, 134 %."""
    if not math.isfinite(value):
        return number(value)
    return f"{100 * value:.2g} %" if value < 0.995 else f"{100 * value:.0f} %"


def duration(seconds: float) -> str:
    """0.4 s, 1 min 15 s, 1 h 2 min."""
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    parts = (*divmod(round(seconds), 60), "min", "s") if round(seconds) < 3600 else (*divmod(round(seconds / 60), 60), "h", "min")
    whole, rest, unit, smaller = parts
    return f"{whole} {unit}" + (f" {rest} {smaller}" if rest else "")


def plural(count: int, word: str) -> str:
    """1 trial, 2,012 trials, no trials."""
    return f"{f'{count:,}' if count else 'no'} {word}{'' if count == 1 else 's'}"


def is_number(cell: str) -> bool:
    """Whether a cell belongs into a column of numbers: "12,345", "46.63 ± 8.3", "99 %", "1.5e-07", "3.1 s", "3 of 4", "–"."""
    return bool(CELL.fullmatch(cell.strip()))


def tied(html: str) -> str:
    """The page with every number tied to its unit, so that no line breaks between them; code and style stay as they are."""
    return TIES.sub(lambda found: NO_BREAK if found[0] == " " else found[0], html)


def unbroken(text: str) -> str:
    """The text in one line."""
    return text.replace(" ", NO_BREAK)


def to(low: str, high: str) -> str:
    """A range in words, or the one value that it is: 0.5 to 2."""
    return low if low == high else f"{low} to {high}"


def span(values: Iterable[float]) -> str:
    found = sorted(values)
    return to(short(found[0]), short(found[-1]))
