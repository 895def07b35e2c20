"""Checks that no certificate makes: is F the same twice, is its derivative that of F, do the parameters matter?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from steadygrad.diagnose.scale import Scale
from steadygrad.iteration.norms import norms
from steadygrad.solution import SteadyStateError
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian

Parameters = nn.Module | Mapping[str, Tensor] | Iterable[Tensor]


REORDERED = 100
"""Rounding units by which sums may differ that are taken in another order, as atomic operations on a GPU take them."""


def difference_of_two_calls(update: Update, h: Tensor, scale: Scale, rewound: bool) -> float:
    """How much two calls of F at one state differ, relative to F: as they are, or with torch's random draws rewound."""
    first, second = (update(h) if rewound else update.layout.flatten(update.leaves(update.layout.split(h))) for _ in range(2))
    apart = max(scale.relative(first - second, first))
    return apart if apart > REORDERED * torch.finfo(update.precision).eps else 0.0


BLAMED = 4
"""A mismatch of more than so many uncertainties is that of J, and not of the difference."""
SHAKY, ABOVE_NOISE = 0.1, 50
"""An uncertainty above which a difference decides nothing, in itself and in units of the noise."""


@dataclass(frozen=True)
class Derivative:
    """A product Jv of autograd beside a central difference Δ of F, both leaf by leaf in units of v."""

    mismatch: float
    """‖Jv − Δ‖ / max(‖Jv‖, ‖Δ‖, ‖v‖): what they disagree by, beside I − J, which is what a gradient is made of."""
    uncertainty: float
    """How far Δ itself changes between two step sizes and by rounding, on the same scale."""
    scale: float
    """max(‖Jv‖, ‖Δ‖) / ‖v‖."""
    noise: float = 1e-2
    """A mismatch that rounding explains."""

    @property
    def wrong(self) -> bool:
        """The mismatch is beyond what the difference can be blamed for."""
        return self.mismatch > self.noise and self.mismatch > BLAMED * self.uncertainty

    @property
    def unsettled(self) -> bool:
        """Neither can be trusted: F jumps or has kinks at the scale of the step."""
        return self.uncertainty > max(SHAKY, ABOVE_NOISE * self.noise)


POWERS = range(-5, 2)
"""Step sizes eps^(1/3)·4^power of the differences: the best for a smooth F of the size of h, where rounding, eps/step, is as
large as what the difference leaves out, step²; and smaller ones for kinks."""
LEAST_NOISE = 1e-4
"""A mismatch that rounding explains in any dtype; in those of few digits 3·eps^0.4 is more, 5e-3 in float32, 0.2 in float16."""
CALLS = 1 + 2 * len(POWERS)
"""Calls of F that `compare_derivative` takes."""
PROBES = 8
"""Projections of Jv that are compared where Jv itself cannot be had."""


def compare_derivative(update: Update, jacobian: Jacobian, h: Tensor, scale: Scale, generator: torch.Generator) -> Derivative:
    """Jv against (F(h + εv) − F(h − εv)) / 2ε at seven step sizes; the one that is surest decides. Fifteen calls of F.

    Finds `detach()`, `no_grad()`, numpy and collectives without a derivative on the way from h to F(h): the adjoint solve
    cannot, since it only ever sees the J of autograd. Where F has no second derivative, and so no Jv, eight projections
    ⟨Jᵀu, v⟩ and ⟨u, Δ⟩ are compared in its place.
    """
    v, units = scale.direction(h, generator), scale.units(h)
    look, product = _product(jacobian, v, units, generator)
    center, eps = update(h), torch.finfo(update.precision).eps
    length, rounding = _length(look(v)), eps * _length(look(center))
    differences: list[tuple[float, Tensor, Tensor]] = []
    for power in POWERS:
        step = eps ** (1 / 3) * 4.0**power
        ahead, behind = update(h + step * v), update(h - step * v)
        kink = (ahead - center) / (2 * step) - (center - behind) / (2 * step)
        differences.append((step, look((ahead - behind) / (2 * step)), look(kink)))
    found: list[Derivative] = []
    for (_, fine, _), (step, coarse, kink) in itertools.pairwise(differences):
        size = max(_length(product), _length(coarse))
        uncertainty = max(_length(fine - coarse), _length(kink), rounding / step)
        beside = max(size, length)
        noise = max(LEAST_NOISE, 3 * eps**0.4)
        found.append(Derivative(_length(product - coarse) / beside, uncertainty / beside, size / length, noise))
    return min(found, key=lambda derivative: derivative.uncertainty if derivative.uncertainty >= 0 else math.inf)


def _length(v: Tensor) -> float:
    return torch.linalg.vector_norm(v).item()


def _product(
    jacobian: Jacobian, v: Tensor, units: Tensor, generator: torch.Generator
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """How to look at F, in units of the leaves of v and in double, and Jv as seen so."""

    def whole(image: Tensor) -> Tensor:
        return image.double() / units

    if not any(output.requires_grad for output in jacobian.outputs):
        return whole, torch.zeros_like(units)  # autograd sees no path from h to F(h)
    try:
        return whole, whole(jacobian.jvp(v))
    except SteadyStateError:
        drawn = [torch.randn(v.shape, generator=generator, dtype=torch.float64).to(v.device) for _ in range(PROBES)]
        # Units of the state for Jᵀu, lest a u in units of v leave the range of the dtype.
        unit = units.amax()
        seen = [(jacobian.vjp((u * unit / units).to(v.dtype)).double() / unit * v).sum() for u in drawn]
        return (lambda image: torch.stack([(u * whole(image)).sum() for u in drawn])), torch.stack(seen)


@dataclass(frozen=True)
class Dependence:
    """How F depends on a parameter at the steady state."""

    kind: str
    """"moves" the steady state, "degenerate" (∂F/∂θ = 0 there, not elsewhere), or "unused"."""
    here: float
    """‖uᵀ ∂F/∂θ‖ for a random u of length one at the steady state."""
    elsewhere: float
    """‖uᵀ ∂F/∂θ‖ at a state nearby."""


NUDGE = 0.1
"""How far from the steady state ∂F/∂θ is taken for comparison, relative to its size."""
ROUNDED = 1e-6
"""A share of ∂F/∂θ nearby that rounding in F leaves of a derivative that vanishes."""
UNKNOWN, VANISHING = 1e-2, 1e-3
"""A distance from which on it says nothing about ∂F/∂θ, and the share that is taken for vanishing then."""


def dependence_on(
    update: Update, h: Tensor, parameters: Parameters, scale: Scale, generator: torch.Generator, distance: float
) -> dict[str, Dependence]:
    """Whether the steady state depends on each parameter: ∂h*/∂θ = (I−J)⁻¹ ∂F/∂θ, so ∂F/∂θ = 0 at h* means no.

    The learning rate and momentum of SGD are the best known of those: at the end of training the step they scale is zero.
    At a state found to a tolerance it is not quite: where it vanishes at h*, ∂F/∂θ is about as much smaller than at a state
    nearby as h is closer to the steady state, and that (`distance`, relative) is what it is judged by.
    """
    named = named_parameters(parameters)
    nearby = h + NUDGE * scale.direction(h, generator)
    probes = [torch.randn(h.shape, generator=generator, dtype=torch.float64).to(h.device, h.dtype) for _ in range(2)]
    here, elsewhere = (_sensitivities(update, at, list(named.values()), probes) for at in (h, nearby))
    vanishing = max(3 * distance / NUDGE, ROUNDED) if distance < UNKNOWN else VANISHING
    return {name: _judged(a, b, vanishing) for name, a, b in zip(named, here, elsewhere, strict=True)}


def _judged(here: float | None, elsewhere: float | None, vanishing: float) -> Dependence:
    if here is None or elsewhere is None or (here == 0 and elsewhere == 0):
        return Dependence("unused", here or 0.0, elsewhere or 0.0)
    return Dependence("degenerate" if here <= vanishing * elsewhere else "moves", here, elsewhere)


def _sensitivities(update: Update, h: Tensor, parameters: list[Tensor], probes: list[Tensor]) -> list[float | None]:
    """‖uᵀ ∂F/∂θ‖, rms over the probes; None where F does not use θ."""
    leaves = update.linearise([leaf.detach() for leaf in update.layout.split(h)])
    with torch.enable_grad():
        image = update.layout.flatten(leaves)
    if not image.requires_grad:
        return [None] * len(parameters)
    sums: list[float | None] = [None] * len(parameters)
    for probe in probes:
        u = (probe / torch.linalg.vector_norm(probe.double())).to(probe.dtype)
        found = torch.autograd.grad(image, parameters, u, retain_graph=True, allow_unused=True)
        grads = cast("Sequence[Tensor | None]", found)
        for i, grad in enumerate(grads):
            if grad is not None:
                sums[i] = math.hypot(sums[i] or 0.0, norms(grad.to_dense().reshape(1, -1))[0] / math.sqrt(len(probes)))
    return sums


def named_parameters(parameters: Parameters) -> dict[str, Tensor]:
    """Names and tensors of a module, a mapping, or a list of tensors; those that need no gradient are refused."""
    if isinstance(parameters, nn.Module):
        named: dict[str, Any] = {name: p for name, p in parameters.named_parameters() if p.requires_grad}
    elif isinstance(parameters, Mapping):
        named = {str(name): p for name, p in cast("Mapping[str, Tensor]", parameters).items()}
    elif isinstance(parameters, Tensor):
        raise TypeError("parameters is a tensor; give a module, a dict of names and tensors, or a list: parameters=[theta].")
    else:
        named = {
            str(item[0]) if isinstance(item, tuple) else f"parameters[{i}]": item[1] if isinstance(item, tuple) else item
            for i, item in enumerate(cast("Iterable[Any]", parameters))
        }
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor) or not tensor.requires_grad:
            what = "needs no gradient" if isinstance(tensor, Tensor) else f"is a {type(tensor).__name__}, no tensor"
            raise SteadyStateError(f"parameters: {name} {what}; give tensors with requires_grad=True that F uses.")
    if not named:
        raise SteadyStateError("parameters holds no tensor that needs a gradient.")
    return named
