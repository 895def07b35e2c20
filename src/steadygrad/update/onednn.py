"""Matrix products of a traced graph by oneDNN, where torch's own are by MKL and the processor is not Intel's."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WORTH = 2**21
"""Multiplications from which on a product is oneDNN's: 64×512 by 512×512, 2²⁴ of them, takes 0.16 ms instead of 0.32 on an EPYC,
64×128 by 128×128, 2²⁰, as long."""


@cache
def better() -> bool:
    """Whether oneDNN is faster than what torch takes: MKL keeps the widest instructions for Intel's own processors."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    with suppress(OSError):
        return "GenuineIntel" not in Path("/proc/cpuinfo").read_text()
    return False


def with_its_products(module: Any) -> bool:
    """Give the large products in float32 of a traced graph to oneDNN; whether there are any."""
    taken = [node for node in module.graph.nodes if _is_large(node)]
    for node in taken:
        *added, a, b = node.args
        with module.graph.inserting_before(node):
            new = module.graph.call_function(_product(), (a, b))
            if added:
                new = module.graph.call_function(torch.ops.aten.add.Tensor, (new, added[0]))
        node.replace_all_uses_with(new)
        module.graph.erase_node(node)
    module.recompile()
    return bool(taken)


def _is_large(node: Any) -> bool:
    """Whether a node is A·B, or C + A·B, of enough float32 numbers on a CPU."""
    if node.target not in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) or node.kwargs:
        return False
    a, b = (argument.meta["val"] for argument in node.args[-2:])
    return a.dtype is b.dtype is torch.float32 and a.device.type == "cpu" and prod(a.shape) * b.shape[1] >= WORTH


@cache
def _product() -> Any:
    """An operation of torch's own kind that multiplies two matrices by oneDNN, which graphs may hold."""

    @torch.library.custom_op("steadygrad::product", mutates_args=(), device_types="cpu")
    def product(a: Tensor, b: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], "")

    @product.register_fake
    def _(a: Tensor, b: Tensor) -> Tensor:
        return a.new_empty(a.shape[0], b.shape[1])

    return torch.ops.steadygrad.product.default
