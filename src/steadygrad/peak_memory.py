"""Measure what tensors cost in memory, on a CPU as on a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def peak_memory(run: Callable[[], Any]) -> int:
    """The bytes of tensors alive at the worst moment of `run()`, above what was alive before.

    Counts what torch's allocator hands out, so it is exact and repeats, unlike the size of the process. CUDA tensors are
    counted by CUDA's own statistics.

    >>> peak_memory(lambda: torch.zeros(256, dtype=torch.float32)) >= 1024
    True
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else the profiler writes a line a call to stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    assert profiled.profiler is not None
    results: Any = profiled.profiler.kineto_results
    changes = [(event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]"]
    alive = peak = 0
    for _, bytes_ in sorted(changes, key=lambda change: change[0]):
        alive += bytes_
        peak = max(peak, alive)
    return peak
