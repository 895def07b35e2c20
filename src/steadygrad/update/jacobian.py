"""One linearisation point of F: products with J = ∂F/∂h and its transpose, on flat states, counted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from steadygrad.failure import SteadyStateError
from steadygrad.state import Layout
from steadygrad.update import REENTRANT, Update, agree
from steadygrad.update.burden import is_light
from steadygrad.update.double import DoubleBackward
from steadygrad.update.saved import CHANGED, Saved, packing_is_on
from steadygrad.update.walk import Walk, hooks_so_far, run_backward

Result = TypeVar("Result")


class NoSecondDerivativeError(SteadyStateError):
    """F has an operation that cannot be differentiated twice, as products with J need."""


class Jacobian:
    """J at one state: `vjp(v)` is Jᵀv, `jvp(v)` is Jv, each one product.

    Jv transposes the graph of Jᵀu, which works wherever double backward does (torch.func.jvp fails through sparse
    products and is silently zero through collectives). With `twice=False` attention in F keeps its fused kernels, which have
    no second derivative: vjp is then faster and takes less memory, and the first jvp calls F once more, without them.
    """

    at_once = 1
    """Several terms of the series can be had at once, of any number."""
    copies = 1
    """How often the problems come again, for a cotangent each."""

    def __init__(self, update: Update, h: Tensor, twice: bool = True) -> None:
        self.update = update
        self.layout: Layout = update.layout
        self._twice = twice
        self._spent = [0]  # shared with the parts of it
        self.h = h.detach().clone() if self.layout.viewable else h.detach()  # F may return what it holds on to
        self.inputs = self.layout.split(self.h)
        if not self.layout.viewable:
            self.inputs = [leaf.clone() for leaf in self.inputs]
        for leaf in self.inputs:
            # What register_post_accumulate_grad_hook does, without a handle that nobody would keep.
            leaf.requires_grad_()._post_accumulate_grad_hooks = OrderedDict({-1: drop_grad})  # pyright: ignore[reportAttributeAccessIssue]
        self.saved = Saved()
        self._hooks = hooks_so_far()
        """By which it can be told whether there may be hooks in F, which the engine calls."""
        self.outputs = self._linearise(update)
        if update.captured is not None:
            update.captured.seal()
        self._through = [i for i, output in enumerate(self.outputs) if output.requires_grad]
        self._transposed: DoubleBackward | None = None
        self._walk: Walk | None = None
        self.structurally_zero = False
        """Set by the first product: autograd sees no path from h to F(h)."""

    def _linearise(self, update: Update) -> list[Tensor]:
        if not packing_is_on():
            return update.linearise(self.inputs, self._twice)
        try:
            with saved_tensors_hooks(self.saved.pack, Saved.unpack):
                return update.linearise(self.inputs, self._twice)
        except RuntimeError as error:
            if "saved tensor hooks" not in str(error):
                raise
        self.saved = Saved()  # torch.func inside F knows no such hooks: let the graph keep its own
        return update.linearise(self.inputs, self._twice)

    @property
    def one(self) -> Jacobian:
        """J of the problems without repetition."""
        return self

    @property
    def products(self) -> int:
        """Products with J or Jᵀ so far, those of its parts included."""
        return self._spent[0]

    @property
    def precision(self) -> torch.dtype:
        """The dtype in which F computes."""
        return self.update.precision

    @cached_property
    def light(self) -> bool:
        """Whether a product takes little more time than the calls it is made of."""
        return is_light(self.outputs)

    def spend(self, products: int) -> None:
        """Count products that were taken elsewhere."""
        self._spent[0] += products

    def gap(self) -> Tensor:
        """F(h) − h, where F was linearised."""
        return self.layout.flatten([output.detach() for output in self.outputs]) - self.h

    def part(self, rows: Tensor) -> Jacobian | None:
        """J of some of the problems, linearised for them alone; None where F is not what it was when all were.

        F may close over something that has changed since, or couple the problems: then only the graph of all is right.
        """
        if not self.update.divisible or self.update.coupled:
            return None
        part = Jacobian(self.update.of_rows(rows), self.h[rows], self._twice)
        part._spent = self._spent
        images = [self.layout.flatten([output.detach() for output in self.outputs])[rows], part.h + part.gap()]
        return part if agree(images[1], images[0], self.precision) else None

    def walking(self, call: Callable[[], Result]) -> Result:
        """`call()`, in which many products with Jᵀ are taken: they go without torch's engine where that gives the same bits."""
        possible = self._walk is None and self.layout.viewable and hooks_so_far() == self._hooks
        walk = Walk.along(self.outputs[0], self.inputs[0]) if possible else None
        if walk is None:
            return call()
        self._walk = walk
        try:
            return walk.inside(call)
        finally:
            self._walk = None

    def vjp(self, v: Tensor) -> Tensor:
        """Jᵀ v."""
        self._spent[0] += 1
        if self.layout.viewable:
            grad = self._pulled(v.view_as(self.inputs[0]))
            self.structurally_zero = grad is None
            return torch.zeros_like(v) if grad is None else grad.reshape_as(v)
        cotangents = self.layout.split(v)
        grads = self._grad([self.outputs[i] for i in self._through], self.inputs, [cotangents[i] for i in self._through])
        self.structurally_zero = all(grad is None for grad in grads)
        return self._flatten(grads, self.inputs)

    def add_terms(self, z: Tensor, v: Tensor, steps: int, keep: int) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
        """So many times z ← z + v, v ← Jᵀv; and the last `keep` vectors that were multiplied, with their products, of any shape.

        The innermost loop of the Neumann series: for a state of one tensor it runs in the shape that F knows.
        """
        pairs: list[tuple[Tensor, Tensor]] = []
        rows = len(self.layout.batch)
        if not self.layout.viewable or rows > 1 or not self._through:
            for left in range(steps, 0, -1):
                image = self.vjp(v)
                if left <= keep:
                    pairs.append((v, image))
                z, v = z + v, image
            return z, v, pairs
        outputs, inputs = tuple(self.outputs), tuple(self.inputs)
        term, total = v.view_as(inputs[0]), z.view_as(inputs[0])
        walk = self._open_walk()
        ours = False  # the sum is changed in place once it is a tensor that nobody else has
        del z, v  # for their memory
        self._spent[0] += steps
        try:
            for left in range(steps, 0, -1):
                if walk is None:
                    (image,) = run_backward(outputs, (term,), True, False, inputs, True, False)
                else:
                    image = walk(term)
                if image is None:
                    self.structurally_zero, image = True, torch.zeros_like(term)
                if left <= keep:  # what is let go at once is used again, from the cache
                    pairs.append((term, image))
                total = total.add_(term) if ours else total + term
                term, ours = image, True
        except RuntimeError as error:
            raise explained(error, _NO_SECOND) from error
        return total.reshape_as(self.h), term.reshape_as(self.h), pairs

    def jvp(self, v: Tensor) -> Tensor:
        """J v, by differentiating u ↦ Jᵀu, which is linear in u."""
        self._spent[0] += 1
        try:
            return self._jvp(v)
        except NoSecondDerivativeError:
            if self._twice:
                raise
        self._twice, self._transposed = True, self._transpose_without_fused_kernels()
        return self._jvp(v)

    def transpose(self) -> DoubleBackward:
        """The graph of Jᵀu that jvp differentiates by u: made once."""
        if self._transposed is None:
            self._transposed = self._transpose(self.outputs)
        return self._transposed

    def _jvp(self, v: Tensor) -> Tensor:
        graph = self.transpose()
        try:
            pushed = graph.push(self.layout.split(v))
        except RuntimeError as error:
            raise explained(error, _NO_SECOND) from error
        recorded = any(grad is not None and grad.requires_grad for grad in graph.pulled)
        if recorded and all(grad is None for grad in pushed):
            raise NoSecondDerivativeError(_NO_SECOND.format("its backward records no graph, as under once_differentiable"))
        return self._flatten(pushed, self.outputs)

    def dense(self) -> Tensor:
        """J as matrices (problems, size, size): one product a column, for reference and small states."""
        rows = self.layout.problems
        size = sum(self.layout.sizes)
        unit = torch.eye(size, dtype=self.layout.flat_dtype, device=self.layout.device)
        return torch.stack([self.vjp(e.expand(rows, size).contiguous()) for e in unit], dim=1)

    def _transpose(self, outputs: list[Tensor]) -> DoubleBackward:
        try:
            return DoubleBackward.of(outputs, self.inputs)
        except RuntimeError as error:
            raise explained(error, _NO_SECOND) from error

    def _transpose_without_fused_kernels(self) -> DoubleBackward:
        """The graph of Jᵀu by another graph of F, whose attention can be differentiated twice."""
        outputs = self.update.linearise(self.inputs, twice=True)
        if not _agree(outputs, self.outputs, self.update.precision):
            raise SteadyStateError(_ANOTHER_F)
        return self._transpose(outputs)

    def _grad(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], v: Sequence[Tensor]) -> Sequence[Tensor | None]:
        if not self._through:  # F keeps nothing of h, nor of anything else that needs a gradient
            return [None] * len(inputs)
        try:
            return run_backward(tuple(outputs), tuple(v), True, False, tuple(inputs), True, False)
        except RuntimeError as error:
            raise explained(error, _NO_SECOND) from error

    def _open_walk(self) -> Walk | None:
        """How to take products here without the engine; another thread that solves with the same J may change it meanwhile."""
        walk = self._walk
        return walk if walk is not None and walk.open else None

    def _pulled(self, v: Tensor) -> Tensor | None:
        """Jᵀv of a state of one tensor, in the shape that F knows."""
        walk = self._open_walk()
        if walk is None:
            return self._grad(self.outputs, self.inputs, [v])[0]
        try:
            return walk(v)
        except RuntimeError as error:
            raise explained(error, _NO_SECOND) from error

    def _flatten(self, grads: Sequence[Tensor | None], like: list[Tensor]) -> Tensor:
        return self.layout.flatten([torch.zeros_like(x) if g is None else g for g, x in zip(grads, like, strict=True)])


def drop_grad(leaf: Tensor) -> None:
    """For leaves of our own: backward() accumulates into every leaf it meets; nobody reads these, and under create_graph
    they would be a cycle."""
    leaf.grad = None


def explained(error: RuntimeError, no_second: str) -> RuntimeError:
    """torch's error about a product with J in our words, with `no_second` for operations without a second derivative."""
    message = str(error)
    if "modified by an inplace operation" in message:
        return SteadyStateError(CHANGED.format(message.split("operation: ")[-1].split(". Hint")[0]))
    if "storage of size 0" in message:
        return SteadyStateError(_FREED)
    if "use_reentrant" in message or "Checkpointing is not compatible" in message:
        return SteadyStateError(REENTRANT)
    if any(part in message for part in ("not implemented", "double backward", "once_differentiable", "differentiate twice")):
        return NoSecondDerivativeError(no_second.format(message.splitlines()[0]))
    return error


_FREED = (
    "a parameter that F uses was freed before a product with J: a module inside F was given to fully_shard by itself, which "
    "frees its parameters after every pass through it. Shard the Equilibrium layer, or what holds it, and not its cell; or "
    'choose a method that needs only Jᵀ, such as gradient="gmres" or "neumann-rbp".'
)


_NO_SECOND = (
    "F has an operation without a second derivative ({}), which products with J need; choose a method that needs only Jᵀ, "
    'such as gradient="gmres", "neumann-rbp" or "rbp".'
)


_ANOTHER_F = (
    "F has attention by a fused kernel, and F by plain operations, which products with J need, gives another value at the same "
    "state: something that F uses has changed since the solve, or the kernels draw different dropout. Choose a method that "
    'needs only Jᵀ, such as gradient="gmres", "neumann-rbp" or "rbp", or call steady_state within '
    "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)."
)


def _agree(a: list[Tensor], b: list[Tensor], dtype: torch.dtype) -> bool:
    """Whether two images, computed in that dtype, are one up to what different kernels round: half of the digits."""
    rounding = torch.finfo(dtype).eps ** 0.5
    return all(bool((x - y).norm() <= rounding * y.norm()) for x, y in zip(a, b, strict=True))
