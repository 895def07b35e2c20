"""Gradient error against K, of every method, on a small network whose ρ(J) can be set."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.api import steady_state
from steadygrad.fixedpoint import Picard
from steadygrad.gradient import TBPTT, Gradient, Implicit
from steadygrad.linear import GMRES, LSQR, Neumann, NormalCG
from steadygrad.roots import Newton
from steadygrad.solution import AdjointSolution

SIZE = 24
COUNTS = (0, 1, 2, 3, 5, 8, 12, 17, 23, 30, 40)


@dataclass(frozen=True)
class Comparison:
    radius: float
    """ρ(J) at the steady state, by dense algebra."""
    norm: float
    errors: dict[str, list[float]]
    """Relative error of the gradient for W at each of COUNTS, a list a method."""
    certificate: AdjointSolution
    """Of Neumann-RBP at the count that was chosen."""
    true_error: float
    """Of that z, against dense algebra."""


def methods(K: int) -> dict[str, Gradient]:
    """Every method at the same effort: K products with J beyond the first term, or K steps."""
    return {
        "Neumann-RBP": Implicit(Neumann(steps=K)),
        "RBP, z₀ ~ U[0, 1]": Implicit(Picard(max_steps=K + 1, rtol=0), initial="uniform", seed=0),
        "CG-RBP": Implicit(NormalCG(max_steps=K + 1, rtol=1e-14)),
        "LSQR": Implicit(LSQR(max_steps=K + 1, rtol=1e-14)),
        "GMRES": Implicit(GMRES(max_steps=K + 1, rtol=1e-14, restart=50)),
        "TBPTT": TBPTT(steps=K + 1),
    }


def network(radius: float, skew: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """W, x and h* of h = tanh(W h + x), W scaled until ρ(J) at h* is the one asked for; `skew` makes it non-normal."""
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(SIZE, SIZE, generator=generator, dtype=torch.float64)
    shape = random / SIZE**0.5 + skew * torch.triu(random, 1) / SIZE**0.5
    h = 0.5 * torch.randn(SIZE, generator=generator, dtype=torch.float64).tanh()
    gain = (1 - h.square()).unsqueeze(1)  # J = diag(1 − h²) W at a steady state h, which x is chosen for
    W = shape * (radius / torch.linalg.eigvals(gain * shape).abs().max())
    return W, h.atanh() - W @ h, h


def compare(radius: float, skew: float, terms: int) -> Comparison:
    """Every method at the steady state, against dense algebra. The state is given exactly, so that any ρ can be looked at."""
    radius, skew, terms = min(max(radius, 0.05), 2.0), min(max(skew, 0.0), 4.0), min(max(int(terms), 0), 60)
    W, x, h = network(radius, skew)
    W.requires_grad_()
    target = torch.linspace(-1, 1, SIZE, dtype=torch.float64)

    def update(h: Tensor) -> Tensor:
        return torch.tanh(W @ h + x)

    def gradient(method: Gradient) -> tuple[Tensor, AdjointSolution | None]:
        # One Newton step at the exact root stays there, where plain iteration would run away from ρ > 1.
        forward = Picard(max_steps=COUNTS[-1] + 2, rtol=0) if isinstance(method, TBPTT) else Newton(max_steps=1, rtol=1e-3)
        solution = steady_state(update, h, forward=forward, gradient=method, on_failure="ignore")
        return torch.autograd.grad((solution.value - target).square().sum(), W)[0], solution.adjoint

    J = (1 - h.square()).unsqueeze(1) * W.detach()
    b = 2 * (h - target)
    z = torch.linalg.solve(torch.eye(SIZE, dtype=torch.float64) - J.T, b)
    exact = torch.outer(z * (1 - h.square()), h)
    errors: dict[str, list[float]] = {name: [] for name in methods(0)}
    for count in COUNTS:
        for name, method in methods(count).items():
            if not (name == "TBPTT" and radius >= 1):  # from ρ = 1 on the state itself runs away under plain iteration
                errors[name].append(float((gradient(method)[0] - exact).norm() / exact.norm()))
    chosen, certificate = gradient(Implicit(Neumann(steps=terms)))
    if certificate is None:
        raise RuntimeError("Neumann-RBP left no certificate; this is an error of steadygrad.")
    true_error = float((chosen - exact).norm() / exact.norm())
    norm = float(torch.linalg.matrix_norm(J, 2))
    return Comparison(float(torch.linalg.eigvals(J).abs().max()), norm, errors, certificate, true_error)
