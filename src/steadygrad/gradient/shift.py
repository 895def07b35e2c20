"""How much the gradient changes on the way that the state has still to go: what the state's own distance does to it.

A state may be a thousandth from the steady one and its gradient ten per cent off: where J changes fast with h, or where a
parameter acts on a small difference of large numbers. The adjoint's certificate, which speaks of J at the state that was found,
knows nothing of that. Here F is linearised once more, where the state is going to.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from steadygrad.iteration.norms import Numbers, leaf_norms
from steadygrad.state.shards import greatest, somewhere
from steadygrad.update import agree, nodes_behind
from steadygrad.update.jacobian import Jacobian, NoSecondDerivativeError

NEAR = 1e-2
"""States nearer than this share of what is trusted (1 %) are not looked at: of the problems of tools/hunt, one in a thousand has
a gradient that is a hundred times further off than its state."""
DOUBT = 3.0
"""A distance that the adjoint proves to be larger than its estimate by this factor is worked out anew."""
SURE = 0.2
"""A first look, along the last step, that finds less than this share of what is trusted is enough."""
COUNTS = 0.05
"""A gradient that ends at less than this share of what it would be if nothing cancelled is as good as zero, and its change is
relative to that: the steady state of a GRU does not depend on its update gate, but states on the way there do."""
NEARBY = 0.1
"""The relative changes of the state at which that is seen."""


class Steady(NamedTuple):
    """States that the search said to be steady."""

    sizes: Numbers
    """(problems, leaves): what they are relative to."""
    distances: Numbers
    """One a problem: estimates of how far they are from the steady ones, relative."""


class Shift(NamedTuple):
    """What is left between a state and the steady one."""

    gradient: float
    """The relative change of the gradient, by the worst of what F depends on; NaN where F is no longer what it was."""
    distance: float
    """The relative distance of the worst problem, in its worst leaf."""


@dataclass
class Rest:
    """The rest of the way from a state that was said to be steady, as seen by one adjoint z of a cotangent b."""

    jacobian: Jacobian
    z: Tensor
    b: Tensor
    steady: Steady
    trusted: float
    solve: Callable[[Tensor, bool], Tensor]
    """The solution of (I − Jᵀ) x = v or, with True, of (I − J) x = v, roughly."""

    def doubted(self, change: Tensor) -> bool:
        """Whether zᵀ(F(h) − h) = bᵀ(h* − h), one a problem, proves a distance far above its estimate."""
        (size,) = leaf_norms([self.b], self.jacobian.layout.sizes)
        with numpy.errstate(all="ignore"):
            least = numpy.abs(change.cpu().numpy()) / (size * self.steady.sizes).sum(axis=1)
        return bool(((least > NEAR * self.trusted) & (least > DOUBT * self.steady.distances)).any())

    def matters(self) -> bool:
        """Whether the distance is such that the gradient may change by more than is trusted."""
        return bool((self.steady.distances > NEAR * self.trusted).any())

    def shift(self, doubted: bool) -> Shift:
        """How much the gradient changes on the way: along the last step first, then, unless that is little, where it leads to.

        The first costs an evaluation of F and four products, the second a solve with J, and with Jᵀ, besides.
        """
        ahead = self._along_the_step()
        if not doubted:
            first = Change(self, ahead)
            shift = max(first.of_products(), first.of_gradients())
            if not somewhere(shift > SURE * self.trusted):
                return Shift(shift, float(self.steady.distances.max()))
        with suppress(NoSecondDerivativeError):  # then F knows no products with J, and the last step has to do
            ahead = self.solve(self.jacobian.moved(), True)
        change = Change(self, ahead)
        change.settle()
        shift = change.of_gradients()
        if shift > self.trusted and not self._still_the_same():
            shift = numpy.nan
        return Shift(shift, self._relative(ahead))

    def _along_the_step(self) -> Tensor:
        """h* − h, were it in the direction of F(h) − h and as long as was estimated."""
        moved = self.jacobian.moved()
        (step,) = leaf_norms([moved], self.jacobian.layout.sizes)
        with numpy.errstate(all="ignore"):
            longer = self.steady.distances / (step / self.steady.sizes).max(axis=1)
        longer[~numpy.isfinite(longer)] = 0.0  # a state that does not move
        return moved * torch.from_numpy(longer).to(moved).unsqueeze(1)

    def _relative(self, ahead: Tensor) -> float:
        (length,) = leaf_norms([ahead], self.jacobian.layout.sizes)
        with numpy.errstate(all="ignore"):
            return float(numpy.nan_to_num(length / self.steady.sizes, nan=0.0, posinf=0.0).max())

    def _still_the_same(self) -> bool:
        """Whether F gives what it gave in the forward pass: it may close over something that has changed since."""
        here, layout = self.jacobian, self.jacobian.layout
        before = layout.flatten([output.detach() for output in here.outputs])
        return agree(here.update(here.h), before, here.precision)


class Change:
    """F linearised at h + ahead, beside F at h: how products with Jᵀ and gradients differ."""

    def __init__(self, rest: Rest, ahead: Tensor) -> None:
        self._rest = rest
        self._here = rest.jacobian
        self._there = Jacobian(rest.jacobian.update, rest.jacobian.h + ahead, twice=False)
        self._products = self._there.vjp(rest.z) - self._here.vjp(rest.z)
        self._edges = shared_edges(self._here, self._there)
        self._z = rest.z

    def of_products(self) -> float:
        """‖(J(h + ahead) − J(h))ᵀ z‖ / ‖b‖ of the worst problem: the residual that z has there."""
        change, size = leaf_norms([self._products, self._rest.b], (self._products.shape[1],))
        with numpy.errstate(all="ignore"):
            found = float(numpy.nan_to_num(change / size, nan=0.0, posinf=numpy.inf).max())
        return found if bool(self._products.isfinite().all()) else numpy.inf

    def settle(self) -> None:
        """Go on with the adjoint of that state, to first order, instead of that of this one."""
        if somewhere(bool(self._products.any())):
            self._z = self._rest.z + self._rest.solve(self._products, False)

    def of_gradients(self) -> float:
        """The relative change of the gradient, by the worst of what F depends on besides the state."""
        trusted = self._rest.trusted
        here = gradients(self._here, self._edges, self._rest.z)
        there = gradients(self._there, self._edges, self._z)
        sizes = numpy.array([_norm(g) for g in here])
        changes = numpy.array([_norm(b - a) for a, b in zip(here, there, strict=True)])
        changes[numpy.isnan(changes)] = numpy.inf
        if somewhere(bool((changes > SURE * trusted * sizes).any())):
            possible = self._possible()
            vanishes = numpy.array([_norm(g) for g in there]) < COUNTS * possible
            sizes = numpy.where(vanishes, numpy.fmax(sizes, possible), sizes)
        with numpy.errstate(all="ignore"):
            worst = float(numpy.where(changes == 0, 0.0, changes / sizes).max(initial=0.0))
        return float(greatest(torch.tensor(worst, dtype=torch.float64, device=self._here.h.device)))

    def _possible(self) -> Numbers:
        """How large each gradient would be if nothing cancelled: of z with random signs, here and at a state nearby."""
        h, z = self._here.h, self._rest.z
        generator = torch.Generator(h.device).manual_seed(0)
        signs = torch.randint(0, 2, z.shape, generator=generator, device=z.device).to(z) * 2 - 1
        noise = 0.5 + torch.rand(h.shape, generator=generator, dtype=h.dtype, device=h.device)
        outward = torch.where(h < 0, -noise, noise)  # F may be defined for one sign only
        nearby = Jacobian(self._here.update, h + NEARBY * outward * torch.maximum(h.abs(), self._typical()), twice=False)
        found = [[_norm(g) for g in gradients(at, self._edges, z * signs)] for at in (self._here, nearby)]
        possible: Numbers = numpy.nan_to_num(numpy.array(found), posinf=0.0).max(axis=0)
        return possible

    def _typical(self) -> Tensor:
        """How large a number of the state is, from what its leaves are relative to: also where it is on its way to zero."""
        columns = numpy.array(self._here.layout.sizes)
        typical = torch.from_numpy(self._rest.steady.sizes / numpy.sqrt(columns)).to(self._here.h)
        return typical.repeat_interleave(torch.from_numpy(columns).to(typical.device), dim=1)


def shared_edges(here: Jacobian, there: Jacobian) -> list[GradientEdge]:
    """What F depends on besides the state: the edges by which one graph of F enters what it has in common with another.

    That was there before F was called: parameters, and tensors that were computed from them before, without a list of either.
    """
    common = set(nodes_behind(output.grad_fn for output in here.outputs))
    found: dict[Any, None] = {}
    for node in nodes_behind(output.grad_fn for output in there.outputs):
        if node not in common:
            found.update(dict.fromkeys(edge for edge in node.next_functions if edge[0] in common))
    return [GradientEdge(*edge) for edge in found]


def gradients(jacobian: Jacobian, edges: list[GradientEdge], z: Tensor) -> list[Tensor]:
    """zᵀ ∂F/∂w for some of what F depends on; zero for what it does not reach."""
    through = [(out, part) for out, part in zip(jacobian.outputs, jacobian.layout.split(z), strict=True) if out.requires_grad]
    if not edges or not through:
        return [torch.zeros(()) for _ in edges]
    outputs, cotangents = zip(*through, strict=True)
    found: list[Any] = list(torch.autograd.grad(outputs, edges, cotangents, retain_graph=True, allow_unused=True))
    return [torch.zeros((), device=z.device) if g is None else g for g in found]


def _norm(gradient: Tensor) -> float:
    """The norm of a gradient of any dtype and layout, summed in float64: squares of small numbers would vanish."""
    gradient = gradient if gradient.layout is torch.strided else gradient.to_dense()
    return torch.linalg.vector_norm(gradient.abs(), dtype=torch.float64).item()
