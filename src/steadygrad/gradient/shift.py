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

from steadygrad.iteration.error import FLOOR
from steadygrad.iteration.norms import Numbers, leaf_norms
from steadygrad.state.shards import greatest, somewhere
from steadygrad.update import agree, nodes_behind
from steadygrad.update.jacobian import Jacobian, NoSecondDerivativeError

NEAR = 5e-3
"""States nearer than this share of what is trusted (1 %) are not looked at, to which well-converged calls with the default
tolerance belong (1e-5 to 4e-5 for tanh nets). Of the problems of tools/hunt, one in a thousand has a gradient that is more than
two hundred times further off than its state."""
DOUBT = 3.0
"""A distance that the adjoint proves to be larger than its estimate by this factor is worked out anew."""
STRETCH = 0.9
"""The share of a step that Newton's next one takes at most, where it is made out that the steps fall slowly."""
SURE = 0.3
"""A first look, along the last step, that finds less than this share of what is trusted is enough."""
COUNTS = 0.01
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
    """The relative change of the gradient, by the worst of what F depends on; NaN where F is no longer what it was, and where
    nothing is seen of what it depends on, as inside torch.func."""
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
    solve: Callable[[Jacobian, Tensor, bool], Tensor]
    """The solution of (I − Jᵀ) x = v or, with True, of (I − J) x = v, roughly."""

    def doubted(self, least: Numbers) -> bool:
        """Whether the change of the loss, zᵀ(F(h) − h) = bᵀ(h* − h), proves distances far above the estimates."""
        return bool(((least > NEAR * self.trusted) & (least > DOUBT * self.steady.distances)).any())

    def matters(self) -> bool:
        """Whether the distance is such that the gradient may change by more than is trusted."""
        return bool((self.steady.distances > NEAR * self.trusted).any())

    def shift(self, doubted: bool) -> Shift:
        """How much the gradient changes on the way: along the last step first, then, unless that is little, where it leads to.

        The first costs an evaluation of F and two products, the second a solve with J, and with Jᵀ, besides.
        """
        if not doubted:
            first = Change(self, self._along_the_step())
            shift = max(first.of_products(), first.of_gradients())
            if not first.sees:
                return Shift(numpy.nan, float(self.steady.distances.max()))
            if not somewhere(shift > SURE * self.trusted):
                return Shift(shift, float(self.steady.distances.max()))
        ahead = self._by_newton()
        change = Change(self, self._along_the_step() if ahead is None else ahead)
        distance = self.steady.distances if ahead is None else self._relative(ahead) * change.stretch()
        change.settle()
        shift = change.of_gradients()
        if not change.sees or (shift > self.trusted and not self._still_the_same()):
            shift = numpy.nan
        return Shift(shift, float(distance.max()))

    def _by_newton(self) -> Tensor | None:
        """h* − h to first order, (I − J)⁻¹ (F(h) − h); None where F knows no products with J."""
        with suppress(NoSecondDerivativeError):
            return self.solve(self.jacobian, self.jacobian.moved(), True)
        return None

    def _along_the_step(self) -> Tensor:
        """h* − h, were it in the direction of F(h) − h and as long as was estimated."""
        moved = self.jacobian.moved()
        (step,) = leaf_norms([moved], self.jacobian.layout.sizes)
        with numpy.errstate(all="ignore"):
            longer = self.steady.distances / (step / self.steady.sizes).max(axis=1)
        longer[~numpy.isfinite(longer)] = 0.0  # a state that does not move
        return moved * torch.from_numpy(longer).to(moved).unsqueeze(1)

    def _relative(self, ahead: Tensor) -> Numbers:
        """How long that way is for each problem, relative, in its worst leaf."""
        (length,) = leaf_norms([ahead], self.jacobian.layout.sizes)
        with numpy.errstate(all="ignore"):
            found: Numbers = numpy.nan_to_num(length / self.steady.sizes, nan=0.0, posinf=0.0).max(axis=1)
        return found

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
        self._edges = shared_edges(self._here, self._there)
        here, self._gradients_here = pulled(self._here, self._edges, rest.z)
        there, self._gradients_there = pulled(self._there, self._edges, rest.z)
        self._products = there - here

    @property
    def sees(self) -> bool:
        """Whether anything is seen that F depends on besides the state."""
        return somewhere(bool(self._edges))

    def of_products(self) -> float:
        """‖(J(h + ahead) − J(h))ᵀ z‖ / ‖b‖ of the worst problem: the residual that z has there."""
        change, size = leaf_norms([self._products, self._rest.b], (self._products.shape[1],))
        with numpy.errstate(all="ignore"):
            found = float(numpy.nan_to_num(change / size, nan=0.0, posinf=numpy.inf).max())
        return found if bool(self._products.isfinite().all()) else numpy.inf

    def stretch(self) -> Numbers:
        """How many times longer than Newton's step to h + ahead the way is, a problem each, from what the step leaves.

        A step that leaves a share q of the residual is followed by one that is q / (1 − 2q) as long where F bends alike on the
        way, and so on: towards a root of multiplicity two, which it is twice too short for, it leaves a quarter.
        """
        here, there, size = leaf_norms([self._here.moved(), self._there.moved(), self._here.h], (self._products.shape[1],))
        rounding = FLOOR * torch.finfo(self._here.precision).eps * size
        with numpy.errstate(all="ignore"):
            left = numpy.nan_to_num(numpy.fmax(there - rounding, 0.0) / here, posinf=0.0)
            share = numpy.where(left < 0.5, left / (1 - 2 * left), STRETCH)
        longer: Numbers = 1 / (1 - numpy.fmin(share, STRETCH))
        return longer

    def settle(self) -> None:
        """Go on with the adjoint of that state instead of that of this one: z leaves the change of the products there."""
        if somewhere(bool(self._products.any())):
            z = self._rest.z + self._rest.solve(self._there, self._products, False)
            self._gradients_there = pulled(self._there, self._edges, z)[1]

    def of_gradients(self) -> float:
        """The relative change of the gradient, by the worst of what F depends on besides the state."""
        pairs = list(zip(self._gradients_here, self._gradients_there, strict=True))
        sizes = numpy.array([_norm(here) for here, _ in pairs])
        changes = numpy.array([_norm(there - here) for here, there in pairs])
        changes[numpy.isnan(changes)] = numpy.inf
        if somewhere(bool((changes > SURE * self._rest.trusted * sizes).any())):
            possible = self._possible()
            vanishes = numpy.array([_norm(there) for _, there in pairs]) < COUNTS * possible
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
        found = [[_norm(g) for g in pulled(at, self._edges, z * signs)[1]] for at in (self._here, nearby)]
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


def pulled(jacobian: Jacobian, edges: list[GradientEdge], z: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Jᵀz, and zᵀ ∂F/∂w for some of what F depends on besides; zero for what it does not reach.

    Both at once, also where there is nothing besides: a collective in F is differentiated by all ranks or by none.
    """
    through = [(out, part) for out, part in zip(jacobian.outputs, jacobian.layout.split(z), strict=True) if out.requires_grad]
    wanted: list[Any] = [*jacobian.inputs, *edges]
    found: list[Any] = [None] * len(wanted)
    if through:
        outputs, cotangents = zip(*through, strict=True)
        found = list(torch.autograd.grad(outputs, wanted, cotangents, retain_graph=True, allow_unused=True))
    jacobian.spend(1)
    own = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(jacobian.inputs, found, strict=False)]
    others = [torch.zeros((), device=z.device) if g is None else g for g in found[len(own) :]]
    return jacobian.layout.flatten(own), others


def _norm(gradient: Tensor) -> float:
    """The norm of a gradient of any dtype and layout, summed in float64: squares of small numbers would vanish."""
    gradient = gradient if gradient.layout is torch.strided else gradient.to_dense()
    return torch.linalg.vector_norm(gradient.abs(), dtype=torch.float64).item()
