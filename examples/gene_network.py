"""A gene network at rest, and its rate constants from measured steady states.

Three genes: an inducer u switches on A, A represses B, B and A drive C.

    0 = 0.05 + a·u/(1 + u) − A        0 = b/(1 + Aⁿ) − B        0 = c·A·B/(k + B) − C·(1 + A/2)

Concentrations at rest are a root; `sg.root` finds them for all doses at once and differentiates them by the
constants, however the root was found. The constants are fitted to noisy measurements at 14 doses.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import steadygrad as sg

TRUE = {"a": 4.0, "b": 3.0, "n": 2.0, "c": 2.5, "k": 0.8}
NOISE = 0.04
"""Standard deviation of a measurement, relative."""


def rates(h: Tensor, u: Tensor, log: Tensor) -> Tensor:
    """Net production of A, B, C at concentrations h (doses, 3), for doses u (doses, 1)."""
    a, b, n, c, k = log.exp()
    A, B, C = h.split(1, dim=1)
    made_a = 0.05 + a * u / (1 + u) - A
    made_b = b / (1 + A.clamp(min=1e-6) ** n) - B
    made_c = c * A * B / (k + B) - C * (1 + A / 2)
    return torch.cat([made_a, made_b, made_c], dim=1)


def at_rest(u: Tensor, log: Tensor) -> sg.Solution:
    return sg.root(lambda h, u: rates(h, u, log), torch.ones(len(u), 3, dtype=u.dtype), u, batch_dims=1)


@dataclass
class Fit:
    doses: Tensor
    measured: Tensor
    fine: Tensor
    curves: Tensor
    before: Tensor
    loss: list[float]
    constants: dict[str, float]
    residual: float
    """The worst of all adjoint solves."""


def main(small: bool = False) -> Fit:
    torch.manual_seed(0)
    doses = torch.logspace(-2, 1.5, 5 if small else 14, dtype=torch.float64).unsqueeze(1)
    truth = torch.tensor(list(TRUE.values()), dtype=torch.float64).log()
    measured = at_rest(doses, truth).value.detach()
    measured = measured * (1 + NOISE * torch.randn_like(measured))

    log = torch.zeros(5, dtype=torch.float64, requires_grad=True)  # all constants one: far off
    fine = torch.logspace(-2, 1.5, 100, dtype=torch.float64).unsqueeze(1)
    before = at_rest(fine, log).value.detach()
    optimiser = torch.optim.Adam([log], lr=0.05)
    losses, residuals = list[float](), list[float]()
    for _ in range(3 if small else 200):
        solution = at_rest(doses, log)
        loss = ((solution.value - measured) / (NOISE * measured)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        assert solution.adjoint is not None
        losses.append(loss.item())
        residuals.append(solution.adjoint.residual)
    found = dict(zip(TRUE, log.detach().exp().tolist(), strict=True))
    print(f"squared error {losses[0]:.0f} → {losses[-1]:.2f} of the noise in {len(losses)} steps; ", end="")
    print(f"worst adjoint residual {max(residuals):.0e}")
    print(", ".join(f"{name} = {value:.2f} (true {TRUE[name]})" for name, value in found.items()))
    curves = at_rest(fine, log).value.detach()
    return Fit(doses, measured, fine, curves, before, losses, found, max(residuals))


def draw(fit: Fit, path: str) -> None:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.3), layout="constrained", width_ratios=(3, 2))
    looks = zip("ABC", ("#0072B2", "#D55E00", "#009E73"), "os^", strict=True)
    for gene, (name, colour, marker) in enumerate(looks):
        left.semilogx(fit.doses, fit.measured[:, gene], marker, color=colour, markersize=4.5, label=f"{name}, measured")
        left.semilogx(fit.fine, fit.curves[:, gene], color=colour, linewidth=1.4, label=f"{name}, fitted")
        left.semilogx(fit.fine, fit.before[:, gene], color=colour, linestyle=":", linewidth=1)
    left.set(title="Steady states (dotted: before the fit)", xlabel="dose of the inducer", ylabel="concentration")
    left.legend(fontsize=7, ncols=3)
    left.set_ylim(None, 5.4)
    right.semilogy(fit.loss, color="#000000")
    right.axhline(1, color="#888888", linestyle=":")
    right.set(title="Error in units of the noise", xlabel="step", ylabel="mean square")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="fewer doses and steps")
