"""Checks that no certificate makes: is F the same twice, is its derivative that of F, do the parameters matter?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from steadygrad.jacobian import Jacobian
from steadygrad.solution import SteadyStateError
from steadygrad.update import Update

Parameters = nn.Module | Mapping[str, Tensor] | Iterable[Tensor]


def difference_of_two_calls(update: Update, h: Tensor, rewound: bool) -> float:
    """How much two calls of F at one state differ, relative to F: as they are, or with torch's random draws rewound."""
    first, second = (update(h) if rewound else update.layout.flatten(update.leaves(update.layout.split(h))) for _ in range(2))
    size, apart = _length(first), _length(first - second)
    if apart <= 100 * torch.finfo(h.dtype).eps * size:
        return 0.0  # sums in another order, as atomic operations on a GPU have them
    return apart / size if size else apart


@dataclass(frozen=True)
class Derivative:
    """A product Jv of autograd beside a central difference of F."""

    mismatch: float
    """‖Jv − Δ‖ / max(‖Jv‖, ‖Δ‖): what autograd and the difference disagree by."""
    uncertainty: float
    """How far the difference itself changes between two step sizes, on the same scale."""
    scale: float
    """max(‖Jv‖, ‖Δ‖) / ‖v‖."""
    noise: float = 1e-2
    """A mismatch that rounding explains."""

    @property
    def wrong(self) -> bool:
        """The mismatch is beyond what the difference can be blamed for."""
        return self.mismatch > self.noise and self.mismatch > 4 * self.uncertainty

    @property
    def unsettled(self) -> bool:
        """Neither can be trusted: F jumps or has kinks at the scale of the step."""
        return self.uncertainty > max(0.1, 50 * self.noise)


def compare_derivative(update: Update, jacobian: Jacobian, h: Tensor, generator: torch.Generator) -> Derivative:
    """Jv against (F(h + εv) − F(h − εv)) / 2ε at seven step sizes; the one that is surest decides. Fifteen calls of F.

    Finds `detach()`, `no_grad()`, numpy and collectives without a derivative on the way from h to F(h): the adjoint solve
    cannot, since it only ever sees the J of autograd. Where F has no second derivative, and so no Jv, eight projections
    ⟨Jᵀu, v⟩ and ⟨u, Δ⟩ are compared in its place.
    """
    v = _direction(update, h, generator)
    project, product = _product(jacobian, v, generator)
    center = update(h)
    base = torch.finfo(h.dtype).eps ** (1 / 3)
    differences: list[tuple[Tensor, Tensor]] = []
    for power in range(-5, 2):
        step = base * 4.0**power
        ahead, behind = update(h + step * v), update(h - step * v)
        kink = (ahead - center) / (2 * step) - (center - behind) / (2 * step)
        differences.append((project((ahead - behind) / (2 * step)), kink))
    found: list[Derivative] = []
    for (fine, _), (coarse, kink) in itertools.pairwise(differences):
        scale = max(_length(product), _length(coarse)) or 1.0
        uncertainty = max(_length(fine - coarse), _length(project(kink)))
        noise = max(1e-4, 3 * torch.finfo(h.dtype).eps ** 0.4)
        found.append(Derivative(_length(product - coarse) / scale, uncertainty / scale, scale / _length(v), noise))
    return min(found, key=lambda derivative: derivative.uncertainty if derivative.uncertainty >= 0 else math.inf)


def _direction(update: Update, h: Tensor, generator: torch.Generator) -> Tensor:
    """A random direction in which every tensor of every problem moves in proportion to its own size."""
    noise = torch.randn(h.shape, generator=generator, dtype=torch.float64).to(h.device, h.dtype)
    layout = update.layout
    whole = _rms(h)
    whole = torch.where(whole > 0, whole, torch.ones_like(whole))
    scaled: list[Tensor] = []
    for leaf, random in zip(layout.split(h), layout.split(noise), strict=True):
        own = _rms(leaf.reshape(layout.problems, -1))
        size = torch.where(own > 0, own, whole)
        scaled.append((size * random.reshape(layout.problems, -1)).reshape(leaf.shape))
    return layout.flatten(scaled)


def _rms(h: Tensor) -> Tensor:
    return h.double().square().mean(dim=1, keepdim=True).sqrt().to(h.dtype)


def _length(v: Tensor) -> float:
    return v.double().norm().item()


def _product(jacobian: Jacobian, v: Tensor, generator: torch.Generator) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """How to look at F, and Jv as seen so."""
    if not any(output.requires_grad for output in jacobian.outputs):
        return _as_it_is, torch.zeros_like(v)  # autograd sees no path from h to F(h)
    try:
        return _as_it_is, jacobian.jvp(v)
    except SteadyStateError:
        probes = [torch.randn(v.shape, generator=generator, dtype=torch.float64).to(v.device, v.dtype) for _ in range(8)]
        seen = torch.stack([(jacobian.vjp(u) * v).double().sum() for u in probes])
        return (lambda image: torch.stack([(u * image).double().sum() for u in probes])), seen


def _as_it_is(image: Tensor) -> Tensor:
    return image


@dataclass(frozen=True)
class Dependence:
    """How F depends on a parameter at the steady state."""

    kind: str
    """"moves" the steady state, "degenerate" (∂F/∂θ = 0 there, not elsewhere), or "unused"."""
    here: float
    """‖uᵀ ∂F/∂θ‖ for a random u of length one at the steady state."""
    elsewhere: float
    """The same at a state nearby."""


NUDGE = 0.1
"""How far from the steady state ∂F/∂θ is taken for comparison, relative to its size."""


def dependence_on(
    update: Update, h: Tensor, parameters: Parameters, generator: torch.Generator, distance: float
) -> dict[str, Dependence]:
    """Of each parameter, whether the steady state depends on it: ∂h*/∂θ = (I−J)⁻¹ ∂F/∂θ, so ∂F/∂θ = 0 at h* means no.

    The learning rate and momentum of SGD are the best known of those: at the end of training the step they scale is zero.
    At a state found to a tolerance it is not quite: where it vanishes at h*, ∂F/∂θ is about as much smaller than at a state
    nearby as h is closer to the steady state, and that (`distance`, relative) is what it is judged by.
    """
    named = named_parameters(parameters)
    nearby = h + NUDGE * _direction(update, h, generator)
    probes = [torch.randn(h.shape, generator=generator, dtype=torch.float64).to(h.device, h.dtype) for _ in range(2)]
    here, elsewhere = (_sensitivities(update, at, list(named.values()), probes) for at in (h, nearby))
    vanishing = max(3 * distance / NUDGE, 1e-6) if distance < 1e-2 else 1e-3
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
    for u in probes:
        found = torch.autograd.grad(image, parameters, u / u.norm(), retain_graph=True, allow_unused=True)
        grads = cast("Sequence[Tensor | None]", found)
        for i, grad in enumerate(grads):
            if grad is not None:
                sums[i] = (sums[i] or 0.0) + grad.square().sum().item() / len(probes)
    return [None if total is None else math.sqrt(total) for total in sums]


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
