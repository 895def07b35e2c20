"""Error bars from second derivatives: how certain are parameters that were fitted to a steady state?

A reaction at rest: substrate flows in at rate s and is used up by an enzyme, 0 = V h/(K + h) − s, and h* is
measured at some inflows. V and K are fitted by Newton's method on the likelihood, with the exact gradient and
the exact Hessian of a loss at a steady state (`derivatives=2`). The inverse of the Hessian is the covariance
of the estimate (Laplace): the two constants are known far better together than each alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import steadygrad as sg

TRUE = torch.tensor([2.0, 1.5], dtype=torch.float64)
NOISE = 0.08
FORWARD = sg.Newton(max_steps=50, rtol=1e-12)


def at_rest(s: Tensor, theta: Tensor) -> Tensor:
    """h* for each inflow s < V; the exact one is K s / (V − s)."""
    V, K = theta
    balance = lambda h, s: V * h / (K + h) - s  # concave in h: from below Newton's steps never overshoot  # noqa: E731
    return sg.root(balance, torch.zeros_like(s), s, forward=FORWARD, gradient="dense", batch_dims=1, derivatives=2).value


def surprise(theta: Tensor, s: Tensor, measured: Tensor) -> Tensor:
    """−log likelihood, up to a constant."""
    return 0.5 * ((at_rest(s, theta) - measured) / NOISE).square().sum()


def derivatives(theta: Tensor, s: Tensor, measured: Tensor) -> tuple[float, Tensor, Tensor]:
    """Value, gradient and Hessian at theta."""
    theta = theta.detach().requires_grad_()
    value = surprise(theta, s, measured)
    (gradient,) = torch.autograd.grad(value, theta, create_graph=True)
    rows = [torch.autograd.grad(part, theta, retain_graph=True)[0] for part in gradient]
    return value.item(), gradient.detach(), torch.stack(rows)


@dataclass
class Fit:
    s: Tensor
    measured: Tensor
    theta: Tensor
    covariance: Tensor
    asymmetry: float
    difference: float
    """Of the Hessian from central differences of the gradient, relative."""
    steps: int


def main(small: bool = False) -> Fit:
    torch.manual_seed(0)
    s = torch.linspace(0.3, 1.5, 4 if small else 12, dtype=torch.float64).unsqueeze(1)
    measured = TRUE[1] * s / (TRUE[0] - s) + NOISE * torch.randn(s.shape, dtype=torch.float64)
    theta, steps = torch.tensor([2.6, 2.2], dtype=torch.float64), 0
    value, gradient, hessian = derivatives(theta, s, measured)
    while gradient.norm() > 1e-8 * hessian.norm() and steps < 30:
        direction, length = torch.linalg.solve(hessian, gradient), 1.0
        if direction @ gradient <= 0:
            direction = gradient / hessian.norm()  # not convex yet: downhill
        while theta[0] - length * direction[0] <= s.max() or surprise(theta - length * direction, s, measured).item() > value:
            length /= 2
        theta, steps = theta - length * direction, steps + 1
        value, gradient, hessian = derivatives(theta, s, measured)

    shifts = 1e-5 * torch.eye(2, dtype=torch.float64)
    central = torch.stack(
        [(derivatives(theta + d, s, measured)[1] - derivatives(theta - d, s, measured)[1]) / 2e-5 for d in shifts]
    )
    fit = Fit(
        s, measured, theta, torch.linalg.inv(hessian),
        asymmetry=float((hessian - hessian.T).norm() / hessian.norm()),
        difference=float((hessian - central).norm() / central.norm()), steps=steps,
    )  # fmt: skip
    error = fit.covariance.diagonal().sqrt()
    correlation = float(fit.covariance[0, 1] / error.prod())
    print(f"V = {theta[0]:.3f} ± {error[0]:.3f} (true 2.0), K = {theta[1]:.3f} ± {error[1]:.3f} (true 1.5), ", end="")
    print(f"correlation {correlation:.3f}; {steps} Newton steps; the Hessian is {fit.difference:.0e} from central differences")
    return fit


def draw(fit: Fit, path: str) -> None:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
    samples = torch.distributions.MultivariateNormal(fit.theta, fit.covariance).sample((300,))
    fine = torch.linspace(0.2, 1.55, 100, dtype=torch.float64)
    curves = samples[:, 1:] * fine / (samples[:, :1] - fine)
    low, high = curves.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64), dim=0)
    left.fill_between(fine, low, high, color="#56B4E9", alpha=0.5, label="95 %, from the Hessian")
    left.plot(fine, fit.theta[1] * fine / (fit.theta[0] - fine), color="#0072B2", label="fitted")
    left.plot(fit.s, fit.measured, "o", color="#D55E00", markersize=4, label="measured")
    left.set(title="Steady state", xlabel="inflow s", ylabel="concentration h*")
    left.legend(fontsize=8)
    right.scatter(samples[:, 0], samples[:, 1], s=5, color="#56B4E9", label="plausible constants")
    right.plot(*fit.theta, "P", color="#0072B2", label="fitted")
    right.plot(*TRUE, "*", color="#D55E00", markersize=10, label="true")
    right.set(title="What the data leave open", xlabel="V", ylabel="K")
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="four measurements")
