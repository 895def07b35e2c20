"""Products with J and its transpose on flat states; those with the transpose can be differentiated."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from steadygrad.method import check_callable, check_count
from steadygrad.solution import SteadyStateError
from steadygrad.state import Layout, State, leaves_of
from steadygrad.update import Update, needs_gradient
from steadygrad.update.attention import differentiable_attention
from steadygrad.update.double import DoubleBackward
from steadygrad.update.jacobian import drop_grad, explained
from steadygrad.update.levels import functorch


class Products:
    """J at one state: `vjp(v)` is Jᵀv with its graph back to the parameters, the args and h; `jvp(v)` is Jv, without one.

    A derivative of Jv (see `DoubleBackward`) would be a third one of F, as autograd counts, and torch's third derivatives of
    layer_norm, batch_norm and instance_norm are wrong by tens of per cent; so Jv carries no graph, and a penalty that is a
    function of Jv takes its gradient through Jᵀ (see `Pairs`).

    One call of F, so random draws in it (dropout) are fixed. Before the first graph, products are compared by
    ⟨u, Jv⟩ = ⟨Jᵀu, v⟩: a backward that records no graph (once_differentiable, numpy) would otherwise leave a part of the
    gradient out and say nothing.
    """

    def __init__(self, update: Callable[..., Any], h: State, args: tuple[Any, ...], batch_dims: int) -> None:
        _refuse_modes()
        check_callable("update", update, "update(h, *args)")
        check_count("batch_dims", batch_dims, least=0)
        self.layout = Layout.of(h, batch_dims)
        self.problems, self.size = self.layout.problems, sum(self.layout.sizes)
        flat = self.layout.flatten(leaves_of(h))
        wanted = torch.is_grad_enabled()
        through_h = wanted and flat.requires_grad
        if not through_h:
            flat = flat.detach().clone().requires_grad_()
            flat.register_post_accumulate_grad_hook(drop_grad)
        with torch.enable_grad():
            self.h = flat.clone(memory_format=torch.contiguous_format)  # no leaf: Update sees it if F changes it in place
            bound = Update(update, args, self.layout)
            with differentiable_attention():
                self.image = self.layout.flatten(bound.linearise(self.layout.split(self.h)))
        _refuse_nonfinite_image(self.h, self.image)
        self.graph = wanted and (through_h or needs_gradient([self.image], besides=[flat]))
        """Whether anything behind J requires a gradient; else products with Jᵀ carry no graph."""
        self._double: DoubleBackward | None = None

    def vjp(self, v: Tensor, graph: bool = True) -> Tensor:
        """Jᵀ v, for a v that carries no graph."""
        if graph and self.graph and self._double is None:
            pulled = self._transpose(v).pulled[0]  # checks, and spares a product
        else:
            pulled = self._pull(v, graph and self.graph)
        return torch.zeros_like(self.h) if pulled is None else pulled

    def jvp(self, v: Tensor) -> Tensor:
        """J v without a graph, by differentiating u ↦ Jᵀu, which is linear in u."""
        double = self._double or self._transpose()
        with _in_our_words():
            pushed = double.push([v])[0]
        return torch.zeros_like(self.h) if pushed is None else pushed

    def dense(self) -> Tensor:
        """J as matrices (problems, size, size): a VJP a row."""
        if self.graph and self._double is None:
            self._transpose()
        units = torch.eye(self.size, dtype=self.h.dtype, device=self.h.device)
        return torch.stack([self.vjp(e.expand_as(self.h)) for e in units], dim=1)

    def signs(self, generator: torch.Generator) -> Tensor:
        """A random ±1 in each place."""
        bits = torch.randint(2, self.h.shape, generator=generator, device="cpu")  # the same on every device
        return (2 * bits - 1).to(self.h)

    def direction(self, generator: torch.Generator) -> Tensor:
        """A random direction of length 1 for each problem."""
        drawn = torch.randn(self.h.shape, generator=generator, dtype=torch.float64, device="cpu")
        return (drawn / torch.linalg.vector_norm(drawn, dim=1, keepdim=True)).to(self.h)

    def _transpose(self, u: Tensor | None = None) -> DoubleBackward:
        """The graph of Jᵀu that jvp differentiates by u, checked once."""
        generator = torch.Generator().manual_seed(0)
        u = (self.direction(generator) if u is None else u).detach().clone().requires_grad_()
        u.register_post_accumulate_grad_hook(drop_grad)
        with _in_our_words():
            double = DoubleBackward.of([self.image], [self.h], [u])
        pulled = double.pulled[0]
        if pulled is not None:
            v = self.direction(generator)
            with _in_our_words():
                pushed = double.push([v])[0]
            size = float(torch.linalg.vector_norm(u.detach()) * torch.linalg.vector_norm(v))
            _check_adjoint(u.detach() * (0 if pushed is None else pushed), pulled.detach() * v, size)
        self._double = double
        return double

    def _pull(self, v: Tensor, graph: bool) -> Tensor | None:
        if not self.image.requires_grad:
            return None
        with _in_our_words():
            return torch.autograd.grad(self.image, self.h, v, retain_graph=True, create_graph=graph, allow_unused=True)[0]


@contextmanager
def _in_our_words() -> Generator[None]:
    """torch's error about a product with J, told as that of a penalty."""
    try:
        yield
    except RuntimeError as error:
        raise explained(error, _NO_SECOND) from error


def generator_of(seed: int) -> torch.Generator:
    check_count("seed", seed, least=0)
    return torch.Generator().manual_seed(seed)


def mean_of(values: Tensor) -> Tensor:
    """The mean of one number a problem; inf and NaN are an error."""
    refuse_nonfinite(values)
    return values.mean()


def refuse_nonfinite(values: Tensor) -> None:
    bad = len(values) - int(values.detach().reshape(len(values), -1).isfinite().all(dim=1).sum())
    if bad:
        raise SteadyStateError(
            f"the penalty is inf or NaN in {bad} of {len(values)} problems although F(h) is finite: J holds inf or NaN, or is so "
            f"large that {values.dtype} overflows. Look in F for a square root or norm at 0, a division by 0 behind "
            "torch.where, or an exploding gain."
        )


CANCELLED = 100.0
"""A product with J of so many roundings of its vectors is what larger terms left: J is zero, as at a superattracting state."""


def _check_adjoint(left: Tensor, right: Tensor, size: float) -> None:
    """Raise where ⟨u, Jv⟩ and ⟨Jᵀu, v⟩, given as their terms, differ by more than rounding; `size` is ‖u‖·‖v‖."""
    eps = torch.finfo(left.dtype).eps
    rounding = eps**0.5 * (left.abs().sum() + right.abs().sum()) + CANCELLED * eps * size
    if (left.sum() - right.sum()).abs() > rounding:
        raise SteadyStateError(_NO_SECOND.format("the backward of one records no graph, or is not the derivative"))


def _refuse_modes() -> None:
    if torch.is_inference_mode_enabled():
        raise SteadyStateError("a penalty needs derivatives, which torch.inference_mode() rules out; use torch.no_grad().")
    if functorch.peek_interpreter_stack() is not None:
        raise SteadyStateError(
            "a penalty cannot be taken inside torch.func.grad, vmap and the like; use torch.autograd.grad around it and "
            "batch_dims for batches. (Inside F they are fine.)"
        )


def _refuse_nonfinite_image(h: Tensor, image: Tensor) -> None:
    if not h.detach().isfinite().all():
        raise SteadyStateError("h holds inf or NaN: there is no J at it. Did the solve that gave h converge?")
    if not image.detach().isfinite().all():
        raise SteadyStateError("update returned inf or NaN at h, which is finite. Check the inputs and the parameters.")


_NO_SECOND = (
    "F has an operation without a second derivative ({}), so the gradient of a penalty on J would lack a part. Write that "
    "operation in differentiable torch. For the value alone call under torch.no_grad(): frobenius, and column_l1 and "
    "gershgorin in their exact form, then need first derivatives only."
)
