"""The library and its peers in torch behind one small face, each used as its documentation says.

The problem is that of loops.py: F(h) = tanh(h Wᵀ + x), loss ‖h‖², gradient of W.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

import steadygrad as sg
from benchmarks.loops import Network, usual_norm


@dataclass(frozen=True)
class Stop:
    """When a solver may stop: a relative tolerance, and the steps that it has."""

    rtol: float
    steps: int


@dataclass(frozen=True)
class Found:
    """A gradient, and what the result object says about it, in the words of the peer; empty where it says nothing."""

    gradient: Any
    forward_flag: str = ""
    adjoint_flag: str = ""
    estimate: float | None = None
    """The error of the adjoint as the peer estimates it; None where it does not."""


Told = Callable[[], tuple[str, str, float | None]]
"""What a result says of the forward and of the backward solve, and its estimate of the adjoint's error: see Found."""


class Peer(ABC):
    """One library. A method that it has no way to do raises NotImplementedError, with the reason."""

    name: str
    package: str
    by: str
    """Its solvers, forward and backward."""
    has_forward = True
    """Whether it finds the steady state itself."""

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None

    @abstractmethod
    def prepare(self, network: Network, forward: Stop, adjoint: Stop) -> Callable[[], Found]:
        """A function that takes the gradient of W, made ready (compiled) where that is the way to use the peer."""

    @abstractmethod
    def curvature(self, network: Network, direction: Tensor, stop: Stop) -> float:
        """d²L/dt² of L(W + t V) at t = 0, by differentiating its gradient once more."""

    @abstractmethod
    def slope(self, network: Network, direction: Tensor, stop: Stop) -> float:
        """dL/dt of L(W + t V) at t = 0 by forward differentiation: torch.func.jvp or jax.jvp."""

    @abstractmethod
    def each_gradient(self, network: Network, inputs: Tensor, stop: Stop) -> Any:
        """The gradient of x at each of the `inputs`, which stand along the first dimension, by vmap of grad."""

    def spectral_radius(self, J: Tensor) -> float:
        """ρ(J) as the peer estimates it."""
        raise NotImplementedError(f"{self.name} has no estimate of ρ(J)")


class TorchPeer(Peer):
    """A peer in torch: it finds the steady state with a graph, and autograd does the rest."""

    @abstractmethod
    def state(self, network: Network, forward: Stop, adjoint: Stop) -> tuple[Tensor, Told]:
        """The steady state with its graph, and what the result says, to be asked after backward."""

    def prepare(self, network: Network, forward: Stop, adjoint: Stop) -> Callable[[], Found]:
        def run() -> Found:
            h, told = self.state(network, forward, adjoint)
            (gradient,) = torch.autograd.grad(h.square().sum(), network.W)
            return Found(gradient, *told())

        return run

    def curvature(self, network: Network, direction: Tensor, stop: Stop) -> float:
        h, _ = self.state(network, stop, stop)
        (gradient,) = torch.autograd.grad(h.square().sum(), network.W, create_graph=True)
        (second,) = torch.autograd.grad((gradient * direction).sum(), network.W)
        return float((second * direction).sum())

    def slope(self, network: Network, direction: Tensor, stop: Stop) -> float:
        def loss(W: Tensor) -> Tensor:
            return self.state(Network(W, network.x), stop, stop)[0].square().sum()

        return float(torch.func.jvp(loss, (network.W.detach(),), (direction,))[1])

    def each_gradient(self, network: Network, inputs: Tensor, stop: Stop) -> Tensor:
        def loss(x: Tensor) -> Tensor:
            return self.state(Network(network.W.detach(), x), stop, stop)[0].square().sum()

        return torch.func.vmap(torch.func.grad(loss))(inputs)


def nothing() -> tuple[str, str, float | None]:
    return "", "", None


class Steadygrad(TorchPeer):
    name, package, by = "steadygrad", "steadygrad", "Picard, Neumann series"

    def __init__(self, derivatives: int = 1) -> None:
        self.derivatives = derivatives

    def state(self, network: Network, forward: Stop, adjoint: Stop) -> tuple[Tensor, Told]:
        W, x = network.W, network.x
        solution = sg.steady_state(
            lambda h: torch.tanh(h @ W.T + x),
            network.start,
            forward=sg.Picard(max_steps=forward.steps, rtol=forward.rtol),
            gradient=sg.Implicit(sg.Neumann(rtol=adjoint.rtol, max_steps=adjoint.steps)),
            derivatives=self.derivatives,
        )

        def told() -> tuple[str, str, float | None]:
            status, backward = f"status {solution.status.name}", solution.adjoint
            if backward is None:
                return status, "", None
            return status, f"adjoint.status {backward.status.name}", backward.error_estimate

        return solution.value, told

    def curvature(self, network: Network, direction: Tensor, stop: Stop) -> float:
        return TorchPeer.curvature(Steadygrad(derivatives=2), network, direction, stop)

    def spectral_radius(self, J: Tensor) -> float:
        return sg.diagnose(lambda h: h @ J.T, torch.zeros(1, len(J), dtype=J.dtype), starts=False).spectral_radius


class Undeclared(Steadygrad):
    """The library without derivatives=2: it must refuse a second derivative, not get it wrong."""

    name = "steadygrad, not told derivatives=2"

    def curvature(self, network: Network, direction: Tensor, stop: Stop) -> float:
        return TorchPeer.curvature(self, network, direction, stop)


class TorchDEQ(TorchPeer):
    name, package, by = "torchdeq", "torchdeq", "fixed_point_iter both ways (its defaults), ift=True"

    def state(self, network: Network, forward: Stop, adjoint: Stop) -> tuple[Tensor, Told]:
        from torchdeq import get_deq

        options = {"f_max_iter": forward.steps, "b_max_iter": adjoint.steps, "f_tol": forward.rtol, "b_tol": adjoint.rtol}
        deq = get_deq(ift=True, f_stop_mode="rel", b_stop_mode="rel", **options)
        found, info = deq(network, network.start)
        return found[-1], lambda: (f"info['rel_lowest'] up to {float(info['rel_lowest'].max()):.1e}", "", None)

    def spectral_radius(self, J: Tensor) -> float:
        from torchdeq import get_deq

        deq = get_deq(f_max_iter=1).eval()
        _, info = deq(lambda h: h @ J.T, torch.zeros(1, len(J), dtype=J.dtype), sradius_mode=True)
        return float(info["sradius"].max())


class TorchOpt(TorchPeer):
    name, package, by = "TorchOpt", "torchopt", "forward by hand (it has none), solve_normal_cg, its default"
    has_forward = False

    def state(self, network: Network, forward: Stop, adjoint: Stop) -> tuple[Tensor, Told]:
        from torchopt.diff.implicit import custom_root
        from torchopt.linear_solve import solve_normal_cg

        solve = solve_normal_cg(rtol=adjoint.rtol, atol=0.0, maxiter=adjoint.steps)

        def residual(h: Tensor, W: Tensor, x: Tensor) -> Tensor:
            return torch.tanh(h @ W.T + x) - h

        @custom_root(residual, argnums=(1, 2), solve=solve)
        def settle(start: Tensor, W: Tensor, x: Tensor) -> Tensor:
            h = start
            for _ in range(forward.steps):
                new = torch.tanh(h @ W.T + x)
                moved, h = (new - h).norm(), new
                if moved <= forward.rtol * h.norm():
                    break
            return h

        return settle(network.start, network.W, network.x), nothing


class XiTorch(TorchPeer):
    name, package, by = "xitorch", "xitorch", "anderson_acc, bicgstab"

    def state(self, network: Network, forward: Stop, adjoint: Stop) -> tuple[Tensor, Told]:
        from xitorch.optimize import equilibrium

        h = equilibrium(
            lambda h, W, x: torch.tanh(h @ W.T + x),
            network.start,
            params=(network.W, network.x),
            bck_options={"method": "bicgstab", "rtol": adjoint.rtol, "atol": 0.0, "max_niter": adjoint.steps},
            method="anderson_acc",  # its default, broyden1, took a minute in float32 and missed 1e-5
            maxiter=forward.steps,
            f_tol=forward.rtol * usual_norm(network.x.numel()),
            f_rtol=float("inf"),
            x_tol=float("inf"),
            x_rtol=float("inf"),
        )
        return h, nothing
