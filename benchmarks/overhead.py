"""What the library costs over the loop one would write by hand, as ratios taken in one run.

Both solve F = tanh(h Wᵀ + x) for T steps and take a Neumann-RBP gradient of K terms beyond the first. The hand-written loop
knows the shapes, checks nothing and certifies nothing. Writes JSON with --out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

import steadygrad as sg

T, K = 30, 20
SIZES = [(1, 16), (32, 64), (64, 256), (128, 512)]


def by_hand(W: torch.Tensor, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        for _ in range(T):
            h = torch.tanh(h @ W.T + x)
    leaf = h.detach().requires_grad_()
    image = torch.tanh(leaf @ W.T + x)
    (b,) = torch.autograd.grad(image.square().sum(), image, retain_graph=True)
    z = v = b
    for _ in range(K):
        (v,) = torch.autograd.grad(image, leaf, v, retain_graph=True)
        z = z + v
    return torch.autograd.grad(image, W, z)[0]


def by_library(W: torch.Tensor, x: torch.Tensor, h: torch.Tensor, **options: object) -> torch.Tensor:
    solution = sg.steady_state(lambda h: torch.tanh(h @ W.T + x), h, **options)
    return torch.autograd.grad(solution.value.square().sum(), W)[0]


def paper(W: torch.Tensor, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return by_library(W, x, h, forward=sg.Picard(max_steps=T, rtol=0), gradient=sg.Implicit(sg.Neumann(steps=K)))


def default(W: torch.Tensor, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return by_library(W, x, h)


def milliseconds(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Medians over rounds that take turns, so that a busy machine disturbs all alike."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(rounds + 3):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            if round_ >= 3:
                taken[name].append(1000 * (time.perf_counter() - started))
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", help="write the records as JSON to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    records = []
    print(f"F = tanh(h Wᵀ + x), T = {T}, K = {K}, float32, one thread; medians of {options.rounds} rounds")
    print(f"{'state':>10} {'by hand':>10} {'paper mode':>16} {'default (to 1e-5)':>20}")
    for rows, size in SIZES:
        torch.manual_seed(0)
        W = (0.6 * torch.linalg.qr(torch.randn(size, size))[0]).requires_grad_()
        x, h = torch.randn(rows, size), torch.zeros(rows, size)
        assert torch.allclose(by_hand(W, x, h), paper(W, x, h), rtol=1e-3, atol=1e-4)
        runs = {"by hand": by_hand, "paper": paper, "default": default}
        took = milliseconds({name: partial(run, W, x, h) for name, run in runs.items()}, options.rounds)
        ratios = {name: took[name] / took["by hand"] for name in runs}
        records.append({"rows": rows, "size": size, "T": T, "K": K, "ms": took, "ratio": ratios})
        print(
            f"{rows:>5}×{size:<4} {took['by hand']:>7.2f} ms {took['paper']:>7.2f} ms {ratios['paper']:>4.2f}x"
            f" {took['default']:>9.2f} ms {ratios['default']:>5.2f}x"
        )
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"torch": torch.__version__, "records": records}, file, indent=1)


if __name__ == "__main__":
    main()
