"""What the records say on a claim in one mode, and the verdict over the modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadygrad.report.trial import MODES


@dataclass(frozen=True)
class Finding:
    """What one mode says: whether the claim holds in it (None where records are missing), the numbers, and why."""

    holds: bool | None
    ours: str
    why: str


def missing(what: str, ours: str = "") -> Finding:
    return Finding(None, ours, f"no verdict, since it takes {what}")


def verdict(holds: Sequence[bool]) -> str:
    """Of one mode alone, a claim that holds is reproduced in one mode, and one that does not is open: the other is missing."""
    if len(holds) < len(MODES):
        return "reproduced in one mode" if any(holds) else "no data"
    return "reproduced" if all(holds) else "reproduced in one mode" if any(holds) else "not reproduced"
