"""Hunts for gradients that are wrong and do not say so: python tools/hunt --problems 3000 --seed 0."""

from __future__ import annotations

import argparse
import time
from collections import Counter

import torch
from trial import Found, drawn, solve

import steadygrad as sg


def line(seed: int, found: Found) -> str:
    s = found.setting
    return (
        f"{seed} {s.name} far={found.far:.1e} (est {found.estimate:.1e}) off={found.off:.1e}/{found.off_all:.1e}/{found.off_there:.1e} (est {found.adjoint_estimate:.1e}) "
        f"gain={found.gain:.1e} steps={found.steps} {str(s.dtype)[6:]} {s.forward!r} {s.gradient!r} shape={tuple(s.start.shape)} "
        f"split={s.split},{s.ratio} batch={s.batch_dims} {s.notes} {found.state} {found.adjoint} {found.error or ''}{[w[:90] for w in found.warned]}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--problems", type=int, default=3000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only")
    options.add_argument("--alarms", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
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
        if found.silent:
            counts["silent"] += 1
            print("SILENT", line(seed, found), flush=True)
        elif found.trusted and found.known and found.off > 0.01:
            counts["inherited from the state"] += 1
            print("INHERITED", line(seed, found), flush=True)
        elif chosen.alarms and found.known and sg.Status.MAX_STEPS not in (found.state, found.adjoint) and found.gain < 30 and not found.trusted and found.far < 1e-3 and found.off_all < 1e-3 and found.setting.gradient not in ("cg", "minres"):
            counts["alarm"] += 1
            print("ALARM", line(seed, found), flush=True)
    print(dict(counts), f"{time.thread_time() - began:.0f} s", len(tried), "families", dict(tried) if chosen.problems < 0 else "")


main()
