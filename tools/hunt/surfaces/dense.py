"""The truth by dense algebra in float64: Newton from where the library ended, and gradients by LU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from surfaces.outcome import Outcome

Flat = Callable[[Tensor, list[Tensor]], Tensor]
COUNTS = 0.05
"""A gradient below this of what it would be if nothing cancelled is as good as zero."""
SIGNS = 8


@dataclass
class Dense:
    """A root of g near a state, if Newton finds one there."""

    g: Flat
    parameters: list[Tensor]
    given: Tensor
    """The state of the library, in double."""
    end: Tensor
    """The root."""
    A_there: Tensor
    """∂g/∂h at the state that was given."""
    A: Tensor
    """∂g/∂h at the root."""
    known: bool

    @classmethod
    def steady(cls, update: Flat, h: Tensor, parameters: list[Tensor]) -> Dense:
        """The steady state of an update near h."""
        return cls.root(lambda v, p: v - update(v, p), h, parameters)

    @classmethod
    def root(cls, g: Flat, h: Tensor, parameters: list[Tensor]) -> Dense:
        held = [p.detach() for p in parameters]

        def flat(v: Tensor) -> Tensor:
            return g(v.view(h.shape), held).reshape(-1)

        def derivative(v: Tensor) -> Tensor:
            return torch.autograd.functional.jacobian(flat, v)

        v = h.detach().reshape(-1).clone()
        there = derivative(v)
        A = there
        known = False
        for _ in range(30):
            try:
                d = torch.linalg.solve(A, flat(v).detach())
            except torch.linalg.LinAlgError:
                break
            v = v - d
            A = derivative(v)
            if not v.isfinite().all() or not A.isfinite().all():
                break
            if d.norm() <= 1e-11 * v.norm() + 1e-30:
                known = True
                break
        return cls(g, parameters, h.detach(), v.view(h.shape), there, A, known)

    @property
    def far(self) -> float:
        """How far the given state is from the root, relative to it."""
        return float((self.given - self.end).norm() / max(float(self.end.norm()), 1e-12))

    @property
    def condition(self) -> float:
        return float(torch.linalg.cond(self.A))

    def gradients(self, at: Tensor, b: Tensor) -> tuple[list[Tensor], list[float]]:
        """−bᵀ(∂g/∂h)⁻¹∂g/∂p at a state, and how large each would be if nothing cancelled."""

        def flat(v: Tensor) -> Tensor:
            return self.g(v.view(at.shape), [p.detach() for p in self.parameters]).reshape(-1)

        A = torch.autograd.functional.jacobian(flat, at.reshape(-1))
        z = torch.linalg.solve(A.mT, b.reshape(-1)).view(at.shape)
        image = self.g(at, self.parameters)

        def pulled(z: Tensor) -> Sequence[Tensor]:
            return torch.autograd.grad(image, self.parameters, z, retain_graph=True, allow_unused=True, materialize_grads=True)

        squares = [0.0] * len(self.parameters)
        for _ in range(SIGNS):
            signs = torch.randint(0, 2, z.shape) * 2.0 - 1
            for i, part in enumerate(pulled(z * signs)):
                squares[i] += float(part.square().sum()) / SIGNS
        return [-part for part in pulled(z)], [square**0.5 for square in squares]

    def judge(self, outcome: Outcome, grads: Sequence[Tensor], b: Tensor, eps: float, asked: float = 0.0) -> None:
        """Compare gradients with those at the root; what the state's own distance changes is not the adjoint's fault."""
        exact, scales = self.gradients(self.end, b)
        there, _ = self.gradients(self.given, b)
        allowed = max(0.01, 30 * asked, 30 * eps * self.condition)
        for i, (found, true, here, scale) in enumerate(zip(grads, exact, there, scales, strict=True)):
            size = max(float(true.norm()), COUNTS * scale)
            if not size > 0:
                continue
            off = float((found.double() - true).norm()) - 1.5 * float((here - true).norm())
            outcome.errors[f"gradient {i}"] = (off / size, allowed)
