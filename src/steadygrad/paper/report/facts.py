"""What the records say about how they came to be, on which machine and in what time; and how many verdicts there are of each."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report.text import duration, plural

LONGEST = 1e12
"""Seconds: more is no time that was measured."""
TOLD = ("cpu", "cores", "platform", "steadygrad", "commit", "torch", "python")
"""What is said of a machine and its software first."""


def machines(records: Sequence[Record]) -> list[tuple[str, str]]:
    """How many trials ran on each machine with its software, the busiest first."""
    found = Counter(machine(record.environment) for record in records)
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [(plural(count, "trial"), name) for name, count in ranked]


def machine(environment: dict[str, Any]) -> str:
    known = {key: environment[key] for key in (*TOLD, *environment) if environment.get(key)}
    if isinstance(commit := known.get("commit"), str):
        known["commit"] = commit[:10] + (" with local changes" if commit.endswith("+") else "")
    words = {"cpu": "{}", "platform": "{}", "cores": "{} cores"}
    return ", ".join(words.get(key, key + " {}").format(value) for key, value in known.items()) or "not recorded"


def time(records: Sequence[Record]) -> str:
    """The seconds of all trials, of the middle one and of the longest; and when the first and the last were started."""
    recorded = [record.measured.get("seconds") for record in records]
    taken = [float(s) for s in recorded if isinstance(s, (int, float)) and not isinstance(s, bool) and 0 <= s < LONGEST]
    if not taken:
        return "not recorded"
    text = f"{duration(sum(taken))} over {plural(len(taken), 'trial')}"
    if len(taken) > 1:
        text += f" (median {duration(statistics.median(taken))}, longest {duration(max(taken))})"
    days = sorted(started[:10] for record in records if isinstance(started := record.measured.get("started"), str))
    return text + (f", started {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else "")


def tally(names: Iterable[str], order: Sequence[str]) -> str:
    """How many there are of each: "10 holds, 4 not applicable"."""
    counts = Counter(names)
    return ", ".join(f"{counts[name]} {name}" for name in order if counts[name])
