"""Peak memory over the steps T and the products K, and how many states each solver holds at its peak.

A fresh process a method. `tensors` is what torch's allocator had given out at the worst moment, which repeats exactly; `process`
is by how much the process had grown by then, taken in a run before, without the profiler.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import steadygrad as sg
from benchmarks.frame import Effort, Figures, Row, Rows, in_fresh_process, short
from benchmarks.loops import Network, by_hand
from steadygrad.peak_memory import peak_memory

STEPS = (50, 100, 300, 1000)
PRODUCTS = (10, 50, 200)
FLAT = 1.05
"""The largest peak over the smallest that is aimed at, for implicit methods."""
GOAL_STATES = 12
"""States that auto may hold where the Neumann series suffices."""
METHODS: dict[str, Callable[[int], Any]] = {
    "Neumann": lambda K: sg.Implicit(sg.Neumann(steps=K)),
    "RBP": lambda K: sg.Implicit(sg.Picard(max_steps=K, rtol=0)),
    "CG-RBP": lambda K: sg.Implicit(sg.NormalCG(steps=K)),
    "LSQR": lambda K: sg.Implicit(sg.LSQR(steps=K)),
    "GMRES(10)": lambda K: sg.Implicit(sg.GMRES(steps=K, restart=10)),
    "auto": lambda K: sg.Implicit(sg.Auto(rtol=1e-5)),
    "TBPTT": lambda K: sg.TBPTT(steps=K),
    "BPTT": lambda K: sg.BPTT(),
    "BPTT √T": lambda K: sg.BPTT(memory="sqrt"),
    "BPTT log T": lambda K: sg.BPTT(memory="log"),
}
GROWING = {"TBPTT", "BPTT", "BPTT √T", "BPTT log T"}
SOLVERS: dict[str, dict[str, Any]] = {
    "Picard": {"forward": sg.Picard(rtol=1e-5), "gradient": sg.Implicit(sg.Neumann(steps=0))},
    "Anderson": {"forward": sg.Anderson(rtol=1e-5), "gradient": sg.Implicit(sg.Neumann(steps=0))},
    "Broyden": {"forward": sg.Broyden(rtol=1e-5), "gradient": sg.Implicit(sg.Neumann(steps=0))},
    "Neumann": {"gradient": sg.Implicit(sg.Neumann(rtol=1e-5))},
    "BiCGSTAB": {"gradient": sg.Implicit(sg.BiCGSTAB(rtol=1e-5))},
    "LSQR": {"gradient": sg.Implicit(sg.LSQR(rtol=1e-5))},
    "NormalCG": {"gradient": sg.Implicit(sg.NormalCG(rtol=1e-5))},
    "GMRES": {"gradient": sg.Implicit(sg.GMRES(rtol=1e-5))},
    "auto": {},
}


def rows(effort: Effort) -> Rows:
    batch, size = effort.pick((128, 128), (4, 8))
    for name in METHODS:
        what = (
            f"peak over T = {STEPS[0]}…{STEPS[-1]} (K = 20) and K = {PRODUCTS[0]}…{PRODUCTS[-1]} (T = 200), state {batch}×{size}"
        )
        yield Row(f"steps: {name}", f"{what}, ρ(W) = 0.8, float32", partial(over_steps, effort, name, batch, size))
    batch, size = effort.pick((2048, 64), (64, 8))
    for radius in (0.8, 0.95):
        what = f"tensors at the peak of a call over the size of the state, {batch}×{size}, ρ(W) = {radius}, to 1e-5, float32"
        yield Row(f"states: ρ = {radius}", what, partial(states, batch, size, radius))


def over_steps(effort: Effort, name: str, batch: int, size: int) -> Figures:
    """The peaks of one method, in a process of its own, the smaller counts first since a process never shrinks."""
    T, K = effort.pick((STEPS, PRODUCTS), (STEPS[:2], PRODUCTS[:2]))
    found = in_fresh_process(peaks, name, batch, size, T, K)
    for axis in ("T", "K"):
        tensors = found[axis]["tensors"]
        found[axis]["spread"] = short(max(tensors) / min(tensors))
    return found | {"goal": None if name in GROWING else FLAT, "state": 4 * batch * size}


def peaks(name: str, batch: int, size: int, steps: tuple[int, ...], products: tuple[int, ...]) -> Figures:
    """Run in a fresh process: process growth of every run first, then the bytes of tensors under the profiler."""
    torch.set_num_threads(1)
    network = Network.random(batch, size, 0.8)
    step(network, forward=sg.Picard(max_steps=2, rtol=0), gradient=METHODS[name](2))
    runs = {
        "T": [partial(step, network, forward=counted(T), gradient=METHODS[name](20)) for T in steps],
        "K": [partial(step, network, forward=counted(200), gradient=METHODS[name](K)) for K in products],
    }
    before = resident()
    found: Figures = {"T": {"counts": list(steps)}, "K": {"counts": list(products)}}
    for axis in ("K", "T"):
        found[axis]["process"] = [grown(run, before) for run in runs[axis]]
    for axis in ("K", "T"):
        found[axis]["tensors"] = [peak_memory(run) for run in runs[axis]]
    return found


def counted(steps: int) -> sg.Picard:
    return sg.Picard(max_steps=steps, rtol=0)


def step(network: Network, **options: Any) -> None:
    """One gradient of W, as in training."""
    solution = sg.steady_state(network, network.start, **options)
    torch.autograd.grad(solution.value.square().sum(), network.W)


def grown(run: Callable[[], object], before: int) -> int:
    """Bytes by which the process has grown at its largest since `before`, this run included."""
    gc.collect()
    run()
    return resident() - before


def resident() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def states(batch: int, size: int, radius: float) -> Figures:
    """How many states each solver holds; W and its gradient are 1/32 of a state each, and are counted too."""
    network = Network.random(batch, size, radius)
    one = 4 * batch * size
    found: dict[str, float] = {
        "one step by hand": short(peak_memory(partial(plain, network)) / one),
        "Picard and Neumann by hand": short(peak_memory(partial(by_hand, network, 30, 30)) / one),
    }
    for name, options in SOLVERS.items():
        options = {"forward": sg.Picard(max_steps=2000, rtol=1e-5), **options}
        run = partial(step, network, on_failure="ignore", **options)
        run()
        found[name] = short(peak_memory(run) / one)
    return {"states": found, "goal": GOAL_STATES}


def plain(network: Network) -> None:
    """F once with its graph, and its backward pass: what nobody can do without."""
    h = torch.ones_like(network.x).requires_grad_()
    torch.autograd.grad(network(h).square().sum(), (network.W, h))
