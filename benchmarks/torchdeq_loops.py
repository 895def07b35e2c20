"""F(h) = tanh(h Wᵀ + x) solved and differentiated by torchdeq, with implicit differentiation and plain iteration."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from benchmarks.loops import Network

INSTALLED = find_spec("torchdeq") is not None


def to_counts(network: Network, T: int, K: int, simple: bool) -> Callable[[], Tensor]:
    """T steps and K products; its backward iteration starts at zero, so that the first of K + 1 steps only yields b.

    `simple`: forward without statistics, which is faster. Backward that raises a TypeError (torchdeq 0.1.0).
    """
    solver = "simple_fixed_point_iter" if simple else "fixed_point_iter"
    return _gradient(network, f_solver=solver, f_max_iter=T, b_max_iter=K + 1, f_tol=0.0, b_tol=0.0)


def to_tolerance(network: Network, rtol: float, limit: int) -> Callable[[], Tensor]:
    """Both equations until a step changes each row by less than rtol."""
    modes = {"f_stop_mode": "rel", "b_stop_mode": "rel"}
    return _gradient(network, f_max_iter=limit, b_max_iter=limit, f_tol=rtol, b_tol=rtol, **modes)


def _gradient(network: Network, **options: object) -> Callable[[], Tensor]:
    from torchdeq import get_deq

    deq = get_deq(ift=True, **options)

    def run() -> Tensor:
        found, _ = deq(network, network.start)
        return torch.autograd.grad(found[-1], network.W, 2 * found[-1].detach())[0]

    return run
