"""Why is my gradient wrong? A network that never settles, its diagnosis, the penalty that repairs it, and the gradient then.

The network h ← tanh(W h + U x) is initialised with weights that are too large: it has no steady state that F would reach, so an
implicit gradient at wherever it stopped means nothing. BPTT over the same steps is the reference: it is the gradient of the
program as it runs, steady or not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

import steadygrad as sg
from steadygrad import penalty

STEPS = 60
METHODS = {"Neumann-RBP, K = 20": "neumann-rbp", "CG-RBP": "cg-rbp", "auto": "auto"}


class Network(torch.nn.Module):
    """h ← tanh(W h + U x), read out by a sum."""

    def __init__(self, inputs: int, hidden: int, gain: float) -> None:
        super().__init__()
        self.W = torch.nn.Parameter(gain * torch.randn(hidden, hidden) / hidden**0.5)
        self.U = torch.nn.Parameter(torch.randn(hidden, inputs) / inputs**0.5)

    def update(self, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(h @ self.W.T + x @ self.U.T)

    def state(self, x: torch.Tensor, gradient: str) -> torch.Tensor:
        h0 = torch.zeros(len(x), len(self.W), dtype=x.dtype)
        forward = sg.Picard(max_steps=STEPS, rtol=0)
        return sg.steady_state(self.update, h0, x, forward=forward, gradient=gradient, on_failure="ignore").value


def gradient_errors(network: Network, x: torch.Tensor, target: torch.Tensor) -> dict[str, float]:
    """The relative distance of each method's gradient for W from that of BPTT."""

    def gradient(method: str) -> torch.Tensor:
        loss = (network.state(x, method).mean(dim=1) - target).square().mean()
        return torch.autograd.grad(loss, network.W)[0]

    reference = gradient("bptt")
    return {name: ((gradient(method) - reference).norm() / reference.norm()).item() for name, method in METHODS.items()}


def repair(network: Network, x: torch.Tensor, bound: float = 0.9, rate: float = 0.01) -> int:
    """Gradient steps on max(0, σ_max(J) − bound) until the network comes to rest; in training, add this term to the loss.

    The bound is one of J at this h alone, and F need not contract on its way there: while the state moves, the bound shrinks.
    """
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    for step in range(1, 500):
        h = network.state(x, "bptt").detach()
        excess = torch.relu(penalty.spectral(network.update, h, x, batch_dims=1) - bound)
        if excess.item() == 0:
            if (network.update(h, x) - h).norm() < 1e-8 * h.norm():
                return step
            bound *= 0.9
            continue
        optimiser.zero_grad()
        excess.backward()
        optimiser.step()
    raise RuntimeError("the network did not come to rest in 500 steps on the penalty.")


@dataclass
class Found:
    """How far each method's gradient is from that of BPTT, by its name."""

    before: dict[str, float]
    after: dict[str, float]


def main(small: bool = False) -> Found:
    torch.manual_seed(0)
    network = Network(inputs=8, hidden=32, gain=2.5).double()
    x, target = torch.randn(4, 8, dtype=torch.float64), torch.randn(4, dtype=torch.float64)

    print("BEFORE\n")
    print(before := sg.diagnose(network.update, network.state(x, "bptt").detach(), x, batch_dims=1, quick=small))
    errors_before = gradient_errors(network, x, target)

    steps = repair(network, x)

    print(f"\nAFTER {steps} steps on the penalty max(0, σ_max(J) − 0.9)\n")
    print(after := sg.diagnose(network.update, network.state(x, "bptt").detach(), x, batch_dims=1, quick=small))
    errors_after = gradient_errors(network, x, target)

    print("\nDistance of the gradient for W from that of BPTT, relative\n")
    print(f"{'':<24}{'before':>12}{'after':>12}")
    for name in METHODS:
        print(f"{name:<24}{errors_before[name]:>12.1e}{errors_after[name]:>12.1e}")
    print(f"{'trustworthy?':<24}{before.trustworthy!s:>12}{after.trustworthy!s:>12}")
    return Found(errors_before, errors_after)


def draw(found: Found, path: str) -> None:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 2.6), layout="constrained")
    looks = (("before", found.before, "#D55E00", "//"), ("after the penalty", found.after, "#0072B2", ""))
    for shift, (label, errors, colour, hatch) in zip((0.2, -0.2), looks, strict=True):
        places = [place + shift for place in range(len(METHODS))]
        axis.barh(places, [errors[name] for name in METHODS], 0.38, color=colour, hatch=hatch, label=label)
    axis.set(
        xscale="log",
        yticks=range(len(METHODS)),
        yticklabels=list(METHODS),
        xlabel="distance of the gradient from that of BPTT, relative",
    )
    axis.axvline(1, color="#555555", linestyle=":")
    figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="a quicker diagnosis")
