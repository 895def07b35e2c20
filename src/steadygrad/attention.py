"""Attention inside F, with the kernel that has second derivatives."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.nn.attention import SDPBackend, sdpa_kernel


def differentiable_attention() -> AbstractContextManager[object]:
    """Within it, F is recorded with torch's plain kernel of scaled_dot_product_attention: the fused ones cannot be
    differentiated twice, as products Jv and gradients of penalties need. The values are the same to rounding."""
    return sdpa_kernel(SDPBackend.MATH)
