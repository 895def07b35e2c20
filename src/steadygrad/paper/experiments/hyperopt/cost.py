"""Time and memory of one hypergradient, each measurement in a process of its own, which runs this file."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from typing import Any

import torch

from steadygrad.paper.experiments.experiment import ReportProgress
from steadygrad.paper.experiments.hyperopt.config import HyperoptConfig
from steadygrad.paper.experiments.hyperopt.estimate import Distance, estimate
from steadygrad.paper.experiments.hyperopt.problem import Problem, free
from steadygrad.paper.experiments.methods import CHECKPOINTED, short
from steadygrad.paper.experiments.resident import forget_peak, held_mb, peak_mb

BESIDE = ("neumann-rbp", *CHECKPOINTED)
"""The methods that are measured in turns with BPTT."""


def cost(config: HyperoptConfig, report: ReportProgress) -> dict[str, Any]:
    """The fastest of several fresh processes; memory is the smallest, for the same reason: what disturbs only adds.

    Methods whose ratio to BPTT matters take turns with it: a machine that others use may be slower for minutes. The distance of
    their hypergradient from BPTT's comes with it.
    """
    found: list[dict[str, Any]] = []
    exact: list[dict[str, Any]] = []
    for repeat in range(config.repeats):
        found.append(_fresh(config))
        if config.method in BESIDE:
            exact.append(_fresh(dataclasses.replace(config, method="bptt", last="full")))
        seconds = " against ".join(f"{one[-1]['cpu_seconds']:.1f} s" for one in (found, exact) if one)
        report(repeat + 1, config.repeats, f"{seconds}, {found[-1]['memory_mb']:.0f} MB")
    beside = {f"bptt_{name}": value for name, value in _least(exact).items()} if exact else {}
    measured = {**_least(found), **beside, "repeats": config.repeats}
    result = {"loss": found[0]["loss"], "products": found[0]["products"], "measured": measured}
    if exact:
        distance = Distance.of(*(torch.tensor(one[0]["gradient"], dtype=torch.float64) for one in (found, exact)))
        result |= {"cosine": distance.cosine, "relative": distance.relative}
    return result


def _least(found: list[dict[str, Any]]) -> dict[str, float]:
    return {name: min(one[name] for one in found) for name in ("wall_seconds", "cpu_seconds", "memory_mb", "base_mb")}


def _fresh(config: HyperoptConfig) -> dict[str, Any]:
    command = [sys.executable, "-m", __name__, json.dumps(dataclasses.asdict(config))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the measuring process ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(config: HyperoptConfig) -> dict[str, Any]:
    """One hypergradient, after a short one that loads and warms what is needed anyway."""
    problem = Problem.of(config)
    estimate(dataclasses.replace(config, training_steps=2, steps=1), problem)
    base = held_mb()
    if base is None or not forget_peak():
        raise RuntimeError("peak memory is read from Linux's /proc; task=cost needs Linux.")
    wall, processor = time.perf_counter(), time.process_time()
    found = estimate(config, problem)
    return {
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - processor,
        "memory_mb": (peak_mb() or base) - base,
        "base_mb": base,
        "loss": short(found.loss),
        "products": sum(adjoint.products for adjoint in found.adjoints),
        "gradient": free(found.gradients, problem.values()).tolist(),
    }


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    print(json.dumps(measure(HyperoptConfig(**json.loads(sys.argv[1])))))
