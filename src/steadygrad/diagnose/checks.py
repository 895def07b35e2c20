"""Checks that no certificate makes: is F the same twice, is its derivative that of F, do the parameters matter?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from steadygrad.jacobian import Jacobian
from steadygrad.linear.rows import norm
from steadygrad.solution import SteadyStateError
from steadygrad.update import Update

Parameters = nn.Module | Mapping[str, Tensor] | Iterable[Tensor]


def difference_of_two_calls(update: Update, h: Tensor, rewound: bool) -> float:
    """How much two calls of F at one state differ, relative to F: as they are, or with torch's random draws rewound."""
    first, second = (update(h) if rewound else update.layout.flatten(update.leaves(update.layout.split(h))) for _ in range(2))
    size = first.norm().item()
    return (first - second).norm().item() / size if size else (first - second).norm().item()


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
        return self.uncertainty > 0.1


def compare_derivative(update: Update, jacobian: Jacobian, h: Tensor, v: Tensor) -> Derivative:
    """Jv against (F(h + εv) − F(h − εv)) / 2ε at three step sizes; the one that changes least decides. Six calls of F.

    Finds `detach()`, `no_grad()`, numpy and collectives without a derivative on the way from h to F(h): the adjoint solve
    cannot, since it only ever sees the J of autograd.
    """
    v = v / norm(v) * max(norm(h).max().item(), 1.0)
    product = _product(jacobian, v)
    base = torch.finfo(h.dtype).eps ** (1 / 3)
    differences = [(update(h + step * v) - update(h - step * v)) / (2 * step) for step in (base / 4, base, 4 * base)]
    found: list[Derivative] = []
    for fine, coarse in itertools.pairwise(differences):
        scale = max(product.norm().item(), coarse.norm().item())
        apart, change = (product - coarse).norm().item(), (fine - coarse).norm().item()
        noise = 1e-4 if h.dtype == torch.float64 else 1e-2
        found.append(Derivative(apart / (scale or 1.0), change / (scale or 1.0), scale / v.norm().item(), noise))
    return min(found, key=lambda derivative: derivative.uncertainty)


def _product(jacobian: Jacobian, v: Tensor) -> Tensor:
    if not any(output.requires_grad for output in jacobian.outputs):
        return torch.zeros_like(v)  # autograd sees no path from h to F(h)
    return jacobian.jvp(v)


@dataclass(frozen=True)
class Dependence:
    """How F depends on a parameter at the steady state."""

    kind: str
    """"moves" the steady state, "degenerate" (∂F/∂θ = 0 there, not elsewhere), or "unused"."""
    here: float
    """‖uᵀ ∂F/∂θ‖ for a random u of length one at the steady state."""
    elsewhere: float
    """The same at a state nearby."""


def dependence_on(update: Update, h: Tensor, parameters: Parameters, generator: torch.Generator) -> dict[str, Dependence]:
    """Of each parameter, whether the steady state depends on it: ∂h*/∂θ = (I−J)⁻¹ ∂F/∂θ, so ∂F/∂θ = 0 at h* means no.

    The learning rate and momentum of SGD are the best known of those: at the end of training the step they scale is zero.
    Zero is judged against ∂F/∂θ at a state nearby, since at a state found to a tolerance it is small, not zero.
    """
    named = named_parameters(parameters)
    size = h.square().mean(dim=1, keepdim=True).sqrt()
    nudge = torch.randn(h.shape, generator=generator, dtype=h.dtype).to(h.device)
    nearby = h + torch.where(size > 0, size, torch.ones_like(size)) * nudge
    probes = [torch.randn(h.shape, generator=generator, dtype=h.dtype).to(h.device) for _ in range(2)]
    here, elsewhere = (_sensitivities(update, at, list(named.values()), probes) for at in (h, nearby))
    return {name: _judged(a, b, h.dtype) for name, a, b in zip(named, here, elsewhere, strict=True)}


def _judged(here: float | None, elsewhere: float | None, dtype: torch.dtype) -> Dependence:
    if here is None or elsewhere is None:
        return Dependence("unused", 0.0, 0.0)
    small = here <= max(1e-3 * elsewhere, 100 * torch.finfo(dtype).tiny)
    if small and elsewhere == 0:
        return Dependence("unused", here, elsewhere)
    return Dependence("degenerate" if small else "moves", here, elsewhere)


def _sensitivities(update: Update, h: Tensor, parameters: list[Tensor], probes: list[Tensor]) -> list[float | None]:
    """‖uᵀ ∂F/∂θ‖, rms over the probes; None where F does not use θ."""
    leaves = update.linearise([leaf.detach() for leaf in update.layout.split(h)])
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
