"""Records of the hyperparameter experiment, made up, for the tests of its report."""

from __future__ import annotations

from typing import Any

import numpy as np

from steadygrad.paper.records import Record

MODES = ("as-published", "corrected")
TUNED = ("bptt", "tbptt", "rbp", "cg-rbp", "neumann-rbp", "auto")
LENGTHS, COUNTS, META = (100, 500, 1000), (50, 100), 40
GAP = {"bptt": 1.0, "tbptt": 1.5, "rbp": 3.0, "cg-rbp": 1.2, "neumann-rbp": 1.1, "auto": 1.05}
"""Where the meta loss of each method ends, relative to BPTT's; TBPTT's is multiplied by how far T is."""
CONFIG = {
    "as-published": {"images": 10000, "held_out": 0, "wrong": 0.0, "batch": 200, "layers": 3, "decay": 0.0, "meta_rate": 0.05},
    "corrected": {"images": 500, "held_out": 1000, "wrong": 0.3, "batch": 0, "layers": 0, "decay": 0.01, "meta_rate": 0.05},
}


def config(task: str, mode: str, method: str, T: int, K: int, seed: int = 0, **changes: Any) -> dict[str, Any]:
    meta = {"meta_steps": META, "reference_every": 5, "last": "full"}
    return {
        "task": task,
        "mode": mode,
        "method": method,
        "training_steps": T,
        "steps": K,
        "seed": seed,
        **CONFIG[mode],
        **meta,
        **changes,
    }


def falling(start: float, stop: float, count: int, jitter: float = 0.0, seed: int = 0) -> list[float]:
    """A curve that is straight on a logarithmic axis, but for its jitter."""
    noise = np.random.default_rng(seed).standard_normal(count)
    return (np.geomspace(start, stop, count) * np.exp(jitter * noise)).tolist()


def walk(method: str, T: int, restless: bool, resting: bool, count: int = 50) -> dict[str, Any]:
    """A path to a point of rest; TBPTT's goes to and fro about it if it is restless, and Neumann-RBP's if it is not resting."""
    t = np.linspace(0, 1, count)
    way = np.outer(np.exp(-12 * t), np.linspace(1, 2, 32))
    if restless if method == "tbptt" else not resting:
        way += 0.5 * np.outer(np.sin(40 * t), np.cos(np.arange(32)))
    return {"step": np.linspace(0, T, count).astype(int).tolist(), "state": way.tolist()}


def tune(
    mode: str,
    method: str,
    T: int,
    K: int,
    seed: int = 0,
    *,
    gaps: dict[str, float] = GAP,
    drift: float = 1.0,
    jitter: float | None = None,
    restless: bool = True,
    resting: bool = True,
    **changes: Any,
) -> Record:
    """As the paper has it, unless told otherwise: TBPTT ends higher, and all curves are smoother, the larger T is."""
    made = config("tune", mode, method, T, K, seed, **changes)
    count = made["meta_steps"]
    stop = 10 / T * gaps[method] * ((T / 100) ** (drift - 0.5) if method == "tbptt" else 1)
    losses = falling(0.5, stop, count, 3 / T if jitter is None else jitter * T, seed)
    exact = method == "bptt"
    seen = list(range(1, count + 1, 5))
    result = {
        "meta_loss": losses,
        "gradient_norm": losses,
        "hyper": {"decay": [[0.01] * 4] * count},
        "reference": None
        if exact
        else {
            "meta_step": seen,
            "cosine": [1.8 - 0.8 * gaps[method]] * len(seen),
            "relative": falling(gaps[method], 0.1, len(seen)),
        },
        "movement": [None if exact or method == "tbptt" else 1e-3] * count,
        "adjoint_residual": [None] * count,
        "degenerate": {"rate": 3} if mode == "as-published" and method == "neumann-rbp" else {},
        "last_training": {"step": list(range(0, T, 10)), "loss": falling(2.3, gaps[method] / T, T // 10, 0.1, seed)},
        "trajectory": {},
        "weight": {"right": [1.0] * count, "wrong": falling(1.0, 0.5, count)}
        if mode == "corrected"
        else {"right": [], "wrong": []},
        "test_loss": 0.3 if mode == "corrected" else None,
        "test_accuracy": 0.9 if mode == "corrected" else None,
        "untuned_test_loss": 0.4 if mode == "corrected" else None,
        "untuned_test_accuracy": 0.85 if mode == "corrected" else None,
        "rejected": 0,
    }
    if method in ("tbptt", "neumann-rbp") and T == 1000 and seed == 0:
        result["trajectory"] = {str(step): walk(method, T, restless, resting) for step in (20, 40) if step <= count}
    return Record("hyperopt", made, result, None, {"seconds_per_meta_step": 1.0, "cpu_seconds_per_meta_step": 0.9})


def errors(mode: str, T: int, seed: int = 0) -> Record:
    found: list[dict[str, Any]] = [
        {"method": m, "steps": None, "last": None, "cosine": 1.0, "relative": 0.0} for m in ("bptt", "forward")
    ]
    for K in (10, *COUNTS):
        for method in ("tbptt", "rbp", "cg-rbp", "neumann-rbp"):
            ways = ("full", "average", "fresh") if method == "neumann-rbp" and mode == "as-published" else ("full",)
            for last in ways:
                numbers = {
                    "cosine": 0.9 - 1 / K,
                    "relative": (1 + 0.1 * seed) / K + 0.1,
                    "noise": 0.2 if last != "full" else None,
                }
                found.append({"method": method, "steps": K, "last": last, **numbers, "products": K, "degenerate": []})
    result = {"loss": 0.1, "reference_norm": 1.0, "movement": 1e-3, "entries": found}
    return Record("hyperopt", config("errors", mode, "all", T, 0, seed), result, None)


def cost(
    mode: str, method: str, T: int, K: int, last: str = "full", seconds: float = 1.0, memory: float = 10.0, repeats: int = 3
) -> Record:
    """Beside Neumann-RBP, BPTT takes T/100 seconds and T MB."""
    measured = {"wall_seconds": seconds, "cpu_seconds": seconds, "memory_mb": memory, "base_mb": 300.0, "repeats": repeats}
    if method == "neumann-rbp":
        measured |= {"bptt_cpu_seconds": T / 100, "bptt_memory_mb": float(T)}
    made = config("cost", mode, method, T, K, last=last, repeats=repeats)
    return Record("hyperopt", made, {"loss": 0.1, "products": K}, None, measured)


def costs(mode: str, last: str = "full", faster: float = 3.5, smaller: float = 60.0) -> list[Record]:
    """BPTT's time and memory grow with T; Neumann-RBP's ratios at T = 1000 are as given."""
    made = [cost(mode, "bptt", T, 0, seconds=T / 100, memory=T) for T in (100, 1000)]
    made += [cost(mode, "neumann-rbp", T, K, last, T / 100 / faster, 1000 / smaller) for T in (100, 1000) for K in (10, 50, 100)]
    return made


def mode_records(mode: str, seeds: int = 2, **changes: Any) -> list[Record]:
    made = [errors(mode, T, seed) for T in LENGTHS for seed in range(seeds)]
    for method in TUNED:
        for T in LENGTHS:
            for K in (0,) if method in ("bptt", "auto") else COUNTS:
                made += [tune(mode, method, T, K, seed, **changes) for seed in range(seeds)]
    return made


def both(**changes: Any) -> list[Record]:
    ways = [*costs("as-published"), *costs("as-published", "average")[2:], *costs("corrected", "step")]
    return [record for mode in MODES for record in mode_records(mode, **changes)] + ways
