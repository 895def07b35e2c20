"""Surfaces around the core solve, each with random problems of its own: python tools/hunt --surface penalty --problems 1000."""

from __future__ import annotations

import importlib
import time
from collections import Counter

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
    if surface == "all":
        return max(hunt(each, problems, seed) for each in SURFACES if each not in SLOW)
    trial = importlib.import_module(f"surfaces.{surface}").trial
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    began = time.thread_time()
    for number in range(seed, seed + problems):
        try:
            outcome: Outcome = trial(number)
        except Exception as problem:
            counts["crash"] += 1
            print("CRASH", surface, number, type(problem).__name__, str(problem)[:300], flush=True)
            continue
        kinds[outcome.name.split()[0]] += 1
        counts["said" if outcome.said else "trusted"] += 1
        if outcome.silent:
            counts["silent"] += 1
            print("SILENT", surface, number, outcome, flush=True)
    print(surface, dict(counts), f"{time.thread_time() - began:.0f} s", dict(kinds), flush=True)
    return 1 if counts["silent"] or counts["crash"] else 0
