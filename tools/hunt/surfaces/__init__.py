"""Surfaces around the core solve, each with random problems of its own: python tools/hunt --surface penalty --problems 1000."""

from __future__ import annotations

import importlib
import time
from collections import Counter

from progress import INTERRUPTED, Progress

from surfaces.outcome import Outcome

SURFACES = (
    "compiled", "diagnosis", "graphs", "half", "hyper", "layer", "minimum", "penalty", "randomness", "root", "sampled", "second",
    "transforms", "unrolled", "warm",
)  # fmt: skip
"""Each is a module here with `trial(seed) -> Outcome`."""


SLOW = ("compiled",)
"""Left out of "all": each problem waits for the compiler."""


def hunt(surface: str, problems: int, seed: int) -> int:
    """Try the problems of some seeds on a surface, or on "all"; say which are silently wrong or end in a raw error."""
    if surface != "all":
        return hunt_on(surface, problems, seed, surface)
    chosen = [each for each in SURFACES if each not in SLOW]
    worst = 0
    for number, each in enumerate(chosen, 1):
        worst = max(worst, hunt_on(each, problems, seed, f"{each} ({number} of {len(chosen)} surfaces)"))
        if worst == INTERRUPTED:  # Ctrl-C ends all of it, not one surface
            break
    return worst


def hunt_on(surface: str, problems: int, seed: int, title: str) -> int:
    """Try the problems of some seeds on one surface, and show progress under a title."""
    trial = importlib.import_module(f"surfaces.{surface}").trial
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    began = time.thread_time()
    with Progress(title, problems) as progress:
        for number in progress.over(range(seed, seed + problems)):
            try:
                outcome: Outcome = trial(number)
            except Exception as problem:
                counts["crash"] += 1
                progress.say("CRASH", surface, number, type(problem).__name__, str(problem)[:300])
                continue
            kinds[outcome.name.split()[0]] += 1
            counts["said" if outcome.said else "trusted"] += 1
            if outcome.silent:
                counts["silent"] += 1
                progress.say("SILENT", surface, number, outcome)
    print(surface, dict(counts), f"{time.thread_time() - began:.0f} s", dict(kinds), flush=True)
    if progress.interrupted:
        return INTERRUPTED
    return 1 if counts["silent"] or counts["crash"] else 0
