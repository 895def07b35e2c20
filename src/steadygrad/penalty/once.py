"""Values whose first derivative is exact and whose second is not: said when a second may be taken."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steadygrad.solution import report_failure


def first_derivative_only(value: Tensor) -> Tensor:
    """The value itself; its backward pass warns where it records a graph (create_graph=True, as in hyperparameter tuning)."""
    return _Once.apply(value) if value.requires_grad else value  # pyright: ignore[reportReturnType]


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            report_failure(_NOT_TWICE, "warn")
        return cotangents[0]


_NOT_TWICE = (
    "the gradient of a penalty is differentiated again, and second derivatives of spectral, lanczos and the sampled forms of "
    "column_l1 and gershgorin lack a part: they hold the vectors fixed that they found. Use frobenius, or column_l1 or "
    "gershgorin in their exact form, where second derivatives matter."
)
