"""F linearised at a state nearby, beside F at the one that was found: how products with Jᵀ and gradients differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from steadygrad.iteration.error import FLOOR
from steadygrad.iteration.norms import SAFE, Numbers, leaf_norms
from steadygrad.state.shards import everywhere, greatest, somewhere
from steadygrad.update import nodes_behind
from steadygrad.update.jacobian import Jacobian

STRETCH = 0.9
"""The share of a step that Newton's next one takes at most, where it is made out that the steps fall slowly."""
COUNTS = 0.01
"""A gradient that ends at less than this share of what it would be if nothing cancelled is as good as zero, and its change is
relative to that: the steady state of a GRU does not depend on its update gate, but states on the way there do."""
GONE = 0.5
"""A gradient that is small beside that at states nearby vanishes only if so much of it goes on the way: else it is just small."""
NEARBY = 0.1
"""The relative changes of the state at which that is seen."""

VANISHING = 0.1
"""A leaf of the state that ends at less than this share of itself, or of what it is relative to, rests at zero."""


class Seen(NamedTuple):
    """A cotangent b with its adjoint, (I − Jᵀ) z = b: what a change of F is seen by."""

    z: Tensor
    b: Tensor


class Here:
    """F where the state was found, and the adjoints by which it is seen: what all looks have in common is worked out once."""

    def __init__(self, jacobian: Jacobian, seen: Sequence[Seen], gap: Tensor | None = None) -> None:
        self.jacobian = jacobian
        self.seen = seen
        self.gap = jacobian.gap() if gap is None else gap
        """F(h) − h."""
        self.edges: list[GradientEdge] = []
        """What F depends on besides the state, once another linearisation of it has shown that."""
        self.complete = False
        """Whether that is surely all: F elsewhere may not use what it uses here."""
        self._pulled: dict[int, tuple[Tensor, list[Tensor]]] = {}

    def ahead(self, way: Tensor) -> Jacobian:
        """F linearised elsewhere."""
        there = Jacobian(self.jacobian.update, self.jacobian.h + way, twice=False)
        if not self.edges:
            self._compare(there)
        return there

    def compare(self) -> None:
        """Find out what F depends on here, by a linearisation more where others have not shown that."""
        if not everywhere(self.complete):
            self._compare(Jacobian(self.jacobian.update, self.jacobian.h, twice=False))

    def _compare(self, there: Jacobian) -> None:
        self.edges, self.complete = shared_edges(self.jacobian, there)
        self._pulled.clear()

    def pulled(self, z: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Jᵀz, and zᵀ ∂F/∂w for what F depends on besides; kept for the adjoints that others look by, too."""
        if id(z) in self._pulled:
            return self._pulled[id(z)]
        found = pulled(self.jacobian, self.edges, z)
        if any(z is seen.z for seen in self.seen):
            self._pulled[id(z)] = found
        return found


class Look:
    """F there, beside F here, as seen by some adjoints. `sizes` (problems, leaves) is what states are relative to."""

    def __init__(self, here: Here, there: Jacobian, seen: Sequence[Seen], sizes: Numbers) -> None:
        self._here = here.jacobian
        self._gap = here.gap
        self.there = there
        """F where the state is going."""
        self._sizes = sizes
        self._edges = here.edges
        self._changes = [Change(here, there, each) for each in seen]

    @property
    def sees(self) -> bool:
        """Whether anything is seen that F depends on besides the state."""
        return somewhere(bool(self._edges))

    def left(self) -> Numbers:
        """The share of the residual that is left at h + ahead, a problem each, in its worst leaf."""
        here, there, size = leaf_norms([self._gap, self.there.gap(), self._here.h], self._here.layout.sizes)
        rounding = FLOOR * torch.finfo(self._here.precision).eps * size
        there = numpy.fmax(there - rounding, 0.0)
        with numpy.errstate(all="ignore"):
            left: Numbers = numpy.nan_to_num(in_worst_leaf(there, self._sizes) / in_worst_leaf(here, self._sizes), posinf=0.0)
        return left

    def stretch(self) -> Numbers:
        """How many times longer than Newton's step to h + ahead the way is, a problem each, from what the step leaves.

        A step that leaves a share q of the residual is followed by one that is q / (1 − 2q) as long where F bends alike on the
        way, and so on: towards a root of multiplicity two, which it is twice too short for, it leaves a quarter.
        """
        left = self.left()
        with numpy.errstate(all="ignore"):
            share = numpy.where(left < 0.5, left / (1 - 2 * left), STRETCH)
        longer: Numbers = 1 / (1 - numpy.fmin(share, STRETCH))
        return longer

    def settled(self, solve: Callable[[Jacobian, Tensor, bool], Tensor], little: float) -> float:
        """The relative change of the gradient with the adjoints of that state instead of those of this one."""
        for change in self._changes:
            change.settle(solve)
        return self.of_gradients(little)

    def corrected(self, errors: Callable[[int, Tensor], Tensor], little: float) -> float:
        """The relative change of the gradient where the i-th z is corrected by the error that `errors` makes of its residual."""
        for i, change in enumerate(self._changes):
            change.correct(errors(i, change.residual))
        return self.of_gradients(little)

    def of_products(self, gains: Numbers) -> float:
        """‖(J(h + ahead) − J(h))ᵀ z‖, the residual that z has there, over ‖b‖ of the worst problem and cotangent.

        Or, if that is more, what it becomes with the gains of (I − J)⁻¹ that are known, one a problem, over ‖z‖: where b hardly
        excites a slow direction and the change of J does, that is the larger one.
        """
        return max(change.of_products(gains) for change in self._changes)

    def of_gradients(self, little: float) -> float:
        """The relative change of the gradient, by the worst of what F depends on besides the state, and the worst cotangent.

        Less than `little` is not looked into.
        """
        worst = max(self._of_gradients(change, little) for change in self._changes)
        return float(greatest(torch.tensor(worst, dtype=torch.float64, device=self._here.h.device)))

    def _of_gradients(self, change: Change, little: float) -> float:
        sizes, ends, changes = (numpy.array(norms) for norms in change.norms())
        changes[numpy.isnan(changes)] = numpy.inf
        if somewhere(bool((changes > little * sizes).any())):
            here, nearby = self._possible(change.seen.z)
            cancels, vanishes = ends < COUNTS * here, (ends < COUNTS * nearby) & (changes > GONE * sizes)
            sizes = numpy.where(cancels | vanishes, numpy.fmax(sizes, numpy.fmax(here, nearby)), sizes)
        with numpy.errstate(all="ignore"):
            return float(numpy.where(changes == 0, 0.0, changes / sizes).max(initial=0.0))

    def _possible(self, z: Tensor) -> Numbers:
        """How large each gradient would be if nothing cancelled: of z with random signs, (here and nearby, gradients)."""
        h, draw = self._here.h, numpy.random.default_rng(0)  # torch's own draws are refused under a vmap
        signs = signs_like(z, draw)
        noise = torch.from_numpy(draw.uniform(0.5, 1.5, tuple(h.shape))).to(h)
        outward = torch.where(h < 0, -noise, noise)  # F may be defined for one sign only
        nearby = Jacobian(self._here.update, h + NEARBY * outward * self._own_sizes(), twice=False)
        found = [[_norm(g) for g in pulled(at, self._edges, z * signs)[1]] for at in (self._here, nearby)]
        possible: Numbers = numpy.nan_to_num(numpy.array(found), posinf=0.0)
        return possible

    def _own_sizes(self) -> Tensor:
        """How large each number of the state is; where it is rounding, or its leaf rests at zero, what that is relative to.

        Quantities of very different sizes may share a leaf, as the species of a reaction do.
        """
        h, columns = self._here.h, numpy.array(self._here.layout.sizes)
        here, there = leaf_norms([h, self.there.h], self._here.layout.sizes)
        each = [self._sizes / numpy.sqrt(columns), numpy.where(there < VANISHING * numpy.fmax(here, self._sizes), numpy.inf, 0.0)]
        repeats = torch.from_numpy(columns).to(h.device)
        typical, least = (torch.from_numpy(leaf).to(h).repeat_interleave(repeats, dim=1) for leaf in each)
        return torch.where(h.abs() > least, h.abs(), typical)


class Change:
    """How Jᵀz and zᵀ ∂F/∂w differ between two linearisations of F, for one adjoint z."""

    def __init__(self, here: Here, there: Jacobian, seen: Seen) -> None:
        self.seen = seen
        self._there, self._edges = there, here.edges
        self._product, self._before = here.pulled(seen.z)
        self._with_another: list[Tensor] | None = None
        """The gradients at the second with another adjoint than z, once there is one."""

    @property
    def residual(self) -> Tensor:
        """What z leaves of its equation at the first."""
        return self.seen.b - self.seen.z + self._product

    @cached_property
    def _after(self) -> tuple[Tensor, list[Tensor]]:
        """Jᵀz at the second, and the gradients there: pulled only where somebody compares them."""
        return pulled(self._there, self._edges, self.seen.z)

    @cached_property
    def _products(self) -> Tensor:
        """The change of Jᵀz."""
        return self._after[0] - self._product

    def of_products(self, gains: Numbers) -> float:
        """The change of Jᵀz over the size of b, or, times a gain, of z, of the worst problem."""
        change, b, z = leaf_norms([self._products, self.seen.b, self.seen.z], (self._products.shape[1],))
        with numpy.errstate(all="ignore"):
            found = float(numpy.nan_to_num(numpy.fmax(change / b, gains[:, None] * change / z), nan=0.0, posinf=numpy.inf).max())
        return found if numpy.isfinite(change).all() else numpy.inf

    def settle(self, solve: Callable[[Jacobian, Tensor, bool], Tensor]) -> None:
        """Go on with the adjoint of the second linearisation: z leaves the change of the products there."""
        if somewhere(bool(self._products.any())):
            z = self.seen.z + solve(self._there, self._products, False)
            self._with_another = pulled(self._there, self._edges, z)[1]

    def correct(self, error: Tensor) -> None:
        """Go on with z and its error."""
        self._with_another = pulled(self._there, self._edges, self.seen.z + error)[1]

    def norms(self) -> tuple[list[float], list[float], list[float]]:
        """The norms of each gradient at the first, of that at the second, and of their difference."""
        ends = self._after[1] if self._with_another is None else self._with_another
        differences = [after - before for before, after in zip(self._before, ends, strict=True)]
        before, after, changes = ([_norm(g) for g in some] for some in (self._before, ends, differences))
        return before, after, changes


def shared_edges(here: Jacobian, there: Jacobian) -> tuple[list[GradientEdge], bool]:
    """What F depends on besides the state: the edges by which one graph of F enters what it has in common with another.

    That was there before F was called: parameters, and tensors that were computed from them before, without a list of either.
    Also whether the first depends on no other leaf: where F branches, it may use at one state what it does not at another.
    """
    nodes = dict.fromkeys(nodes_behind(output.grad_fn for output in here.outputs))
    others = dict.fromkeys(nodes_behind(output.grad_fn for output in there.outputs))
    found = dict.fromkeys(edge for node in others if node not in nodes for edge in node.next_functions if edge[0] in nodes)
    own = {id(leaf) for leaf in here.inputs}
    complete = all(id(getattr(node, "variable", here.inputs[0])) in own for node in nodes if node not in others)
    return [GradientEdge(*edge) for edge in found], complete


def signs_like(v: Tensor, draw: numpy.random.Generator) -> Tensor:
    """A tensor of random signs."""
    return torch.from_numpy(draw.integers(0, 2, tuple(v.shape)) * 2 - 1).to(v)


def in_worst_leaf(norms: Numbers, sizes: Numbers) -> Numbers:
    """Norms (problems, leaves) relative to what the leaves are measured by, the largest of each problem."""
    with numpy.errstate(all="ignore"):
        found: Numbers = numpy.nan_to_num(norms / sizes, nan=0.0, posinf=0.0).max(axis=1)
    return found


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
    """The norm of a gradient of any dtype and layout; summed in float64 where squares of small numbers might vanish."""
    gradient = gradient if gradient.layout is torch.strided else gradient.to_dense()
    if gradient.dtype in SAFE:
        low, high = SAFE[gradient.dtype]
        if low < (norm := torch.linalg.vector_norm(gradient).item()) < high:
            return norm
    return torch.linalg.vector_norm(gradient.abs(), dtype=torch.float64).item()
