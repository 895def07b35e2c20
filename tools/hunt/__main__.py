"""Hunts for gradients that are wrong and do not say so: python tools/hunt --problems 3000 --seed 0."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import torch
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
    counts: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    began = time.thread_time()
    for seed in range(chosen.seed, chosen.seed + chosen.problems):
        try:
            found = solve(drawn(seed, chosen.only), seed)
        except Exception as problem:
            counts["crash"] += 1
            print("CRASH", seed, drawn(seed, chosen.only).name, type(problem).__name__, str(problem)[:300], flush=True)
            continue
        tried[found.setting.name] += 1
        counts["trusted" if found.trusted else "said"] += 1
        counts["truth known"] += found.known
        counts["excused"] += found.excused
        if found.silent:
            counts["silent"] += 1
            print("SILENT", line(seed, found), flush=True)
        elif (
            chosen.alarms
            and found.known
            and sg.Status.MAX_STEPS not in (found.state, found.adjoint)
            and found.gain < 30
            and not found.trusted
            and found.far < 1e-3
            and found.off < 1e-3
            and found.setting.gradient not in ("cg", "minres")
        ):
            counts["alarm"] += 1
            print("ALARM", line(seed, found), flush=True)
    print(dict(counts), f"{time.thread_time() - began:.0f} s", len(tried), "families")
    return 1 if counts["silent"] or counts["crash"] else 0


sys.exit(main())
