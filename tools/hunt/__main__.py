"""Hunts for gradients that are wrong and do not say so: python tools/hunt --problems 3000 --seed 0."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import torch
from progress import INTERRUPTED, Progress
from setting import drawn
from surfaces import SURFACES, hunt
from trial import Found, solve

import steadygrad as sg


def line(seed: int, found: Found) -> str:
    """One problem with all that is needed to look into it."""
    s = found.setting
    facts = {
        "far": f"{found.far:.1e} (estimate {found.estimate:.1e})",
        "off": f"{found.off:.1e}, by the adjoint {found.adjoint_off:.1e} (estimate {found.adjoint_estimate:.1e})",
        "shift": found.shift,
        "gain": f"{found.gain:.1e}",
        "steps": found.steps,
        "forward": s.forward,
        "gradient": s.gradient,
        "shape": tuple(s.start.shape),
        "dtype": s.dtype,
        "split": (s.split, s.ratio),
        "batch_dims": s.batch_dims,
        **s.notes,
        "ended": (found.state, found.adjoint, found.error, [text[:90] for text in found.warned]),
    }
    return f"{seed} {s.name} " + " ".join(f"{name}={fact}" for name, fact in facts.items())


def alarming(found: Found) -> bool:
    """Whether something was said of a problem that went well, and by a method that was not cut short."""
    return (
        found.known
        and sg.Status.MAX_STEPS not in (found.state, found.adjoint)
        and found.gain < 30
        and not found.trusted
        and found.far < 1e-3
        and found.off < 1e-3
        and found.setting.gradient not in ("cg", "minres")
    )


def core(problems: int, first: int, only: str | None, alarms: bool) -> int:
    """Try the core solve on the problems of some seeds; say which are silently wrong or end in a raw error."""
    counts: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    began = time.thread_time()
    with Progress("hunt", problems) as progress:
        for seed in progress.over(range(first, first + problems)):
            try:
                found = solve(drawn(seed, only), seed)
            except Exception as problem:
                counts["crash"] += 1
                progress.say("CRASH", seed, drawn(seed, only).name, type(problem).__name__, str(problem)[:300])
                continue
            tried[found.setting.name] += 1
            counts["trusted" if found.trusted else "said"] += 1
            counts["truth known"] += found.known
            counts["excused"] += found.excused
            if found.silent:
                counts["silent"] += 1
                progress.say("SILENT", line(seed, found))
            elif alarms and alarming(found):
                counts["alarm"] += 1
                progress.say("ALARM", line(seed, found))
    print(dict(counts), f"{time.thread_time() - began:.0f} s", len(tried), "families", flush=True)
    if progress.interrupted:
        return INTERRUPTED
    return 1 if counts["silent"] or counts["crash"] else 0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--problems", type=int, default=3000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only")
    options.add_argument("--alarms", action="store_true")
    options.add_argument("--surface", choices=("all", *SURFACES), help="what to try instead of the core solve")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    if chosen.surface:
        return hunt(chosen.surface, chosen.problems, chosen.seed)
    return core(chosen.problems, chosen.seed, chosen.only, chosen.alarms)


if __name__ == "__main__":
    sys.exit(main())
