"""A step of the paper's graph network beside its matrix products alone.

The step is that of the paper's GRU on Cora and Pubmed. Its products: one sparse with the adjacency, and the state and the sum of
the neighbours with three weight matrices each. Beside it the same step by nn.GRUCell, and with messages added up edge by edge
(index_add), as is done without a sparse matrix, and one product with Jᵀ; the step and the product compiled by torch.compile, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.frame import Effort, Figures, Row, Rows, race
from benchmarks.networks import published_gru

SIZES = {"cora": 64, "pubmed": 16}


def rows(effort: Effort) -> Rows:
    for name, size in effort.pick(SIZES, {"planted": 8}).items():
        yield Row(name, f"one GRU step on {name}, {size} numbers a node, float32", partial(measure, effort, name, size))


def measure(effort: Effort, name: str, size: int) -> Figures:
    with torch.no_grad():
        return {"times": race(runs(name, size, effort.pick("inductor", "eager")), effort)}


def runs(name: str, size: int, backend: str) -> dict[str, Callable[[], object]]:
    """The products alone first: everything is measured against them. `backend` is the one of torch.compile."""
    network, edges = published_gru(name, size)
    adjacency, update, h = network.adjacency, network.dynamics().update, network.features
    source, target = edges
    W, V = network.cell.weight_ih.T, network.cell.weight_hh.T
    with torch.enable_grad():
        leaf = h.clone().requires_grad_()
        image = update(leaf)
        compiled: Callable[[Tensor], Tensor] = torch.compile(update, dynamic=False, backend=backend)
        compiled_image = compiled(leaf)

    def edge_by_edge() -> Tensor:
        return network.cell(torch.zeros_like(h).index_add_(0, target, h[source]), h)

    for other in (edge_by_edge(), compiled(h)):
        if not torch.allclose(update(h), other, atol=1e-4):
            raise RuntimeError("the step and the same step done otherwise differ, so that their times mean nothing")
    return {
        "products": lambda: (adjacency @ h, h @ W, h @ V),
        "step": lambda: update(h),
        "nn.GRUCell": lambda: network.cell(adjacency @ h, h),
        "edge by edge": edge_by_edge,
        "sparse product": lambda: adjacency @ h,
        "product with Jᵀ": lambda: torch.autograd.grad(image, leaf, h, retain_graph=True),
        "step, compiled": lambda: compiled(h),
        "product, compiled": lambda: torch.autograd.grad(compiled_image, leaf, h, retain_graph=True),
    }
