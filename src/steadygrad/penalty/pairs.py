"""The gradient of a function of products with J, by two derivatives of F where autograd would take three."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steadygrad.penalty.once import first_derivative_only
from steadygrad.penalty.products import Products, mean_of


class Pairs:
    """Products Jv and Jᵀw that can be differentiated in v and w, and note what a backward pass asks of J.

    With P a function of such products, dP = Σ ⟨c, dJ v⟩ + Σ ⟨w, dJ c⟩, where c is the cotangent of Jv or Jᵀw. A backward
    pass over the vectors alone, here and now, finds the pairs (u, v) of this sum Σ uᵀ dJ v; held fixed, it is the
    derivative of Σ ⟨Jᵀu, v⟩, which needs one product with Jᵀ a pair, and two derivatives of F. Second derivatives of P lack
    the part in which the pairs move, and a warning says so where they may be taken.
    """

    def __init__(self, J: Products) -> None:
        self._J = J
        self._noted: list[tuple[Tensor, Tensor]] = []
        # Every product hangs on it, so that the pass over the vectors reaches them all, also those of constant vectors.
        self._root = torch.zeros((), dtype=J.h.dtype, device=J.h.device, requires_grad=True)

    def jvp(self, v: Tensor) -> Tensor:
        """J v."""
        return _Product.apply(v, self._root, self._J, self._noted, False)  # pyright: ignore[reportReturnType]

    def vjp(self, w: Tensor) -> Tensor:
        """Jᵀ w."""
        return _Product.apply(w, self._root, self._J, self._noted, True)  # pyright: ignore[reportReturnType]

    def mean_of(self, values: Tensor) -> Tensor:
        """The mean of one number a problem, made of these products, with its gradient by all that J depends on."""
        value = mean_of(values)
        if not self._J.graph or not value.requires_grad:
            return value.detach()
        torch.autograd.grad(value, self._root)
        weighty = [(u, v) for u, v in self._noted if u.any() and v.any()]  # of a maximum, most have no part in it
        pairs = weighty or self._noted[:1]  # a gradient of 0 is a gradient too
        tied = torch.stack([(self._J.vjp(u) * v).sum() for u, v in pairs]).sum()
        self._noted.clear()
        return first_derivative_only(value.detach() + (tied - tied.detach()))


class _Product(torch.autograd.Function):
    """v ↦ Jv or, transposed, Jᵀv. Its backward pass notes the pair (u, v) of uᵀ dJ v: (c, v) or, transposed, (v, c)."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, root: Tensor, J: Products, noted: list[tuple[Tensor, Tensor]], transposed: bool) -> Tensor:
        ctx.J, ctx.noted, ctx.transposed = J, noted, transposed
        ctx.save_for_backward(v)
        return J.vjp(v, graph=False) if transposed else J.jvp(v)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        (c,), (v,) = cotangents, ctx.saved_tensors
        ctx.noted.append((v.detach(), c) if ctx.transposed else (c, v.detach()))
        pulled = None
        if ctx.needs_input_grad[0]:
            pulled = ctx.J.jvp(c) if ctx.transposed else ctx.J.vjp(c, graph=False)
        return pulled, c.new_zeros(()), None, None, None
