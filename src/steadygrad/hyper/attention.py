"""Attention by plain operations wherever a training step is to be differentiated."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from steadygrad.update.attention import differentiable_attention


def transformed() -> bool:
    """Whether this runs inside torch.func.grad, jvp, vmap and the like.

    >>> transformed()
    False
    """
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore[reportAttributeAccessIssue]


def attention_for_a_graph() -> AbstractContextManager[Any]:
    """torch's plain kernel for attention where a graph is kept: the fused ones have no second derivative, and J needs it.

    >>> with attention_for_a_graph():
    ...     _ = torch.nn.functional.scaled_dot_product_attention(*torch.zeros(3, 1, 2, 4).unbind())
    """
    if not (torch.is_grad_enabled() or transformed()):
        return nullcontext()
    # Inside a compiled step torch's own context is traced; ours, which threads share, has a lock that cannot be.
    return sdpa_kernel(SDPBackend.MATH) if torch.compiler.is_compiling() else differentiable_attention()
