"""What the library and its peers say when they are wrong: stopped solvers, second derivatives, transforms, estimates of ρ(J).

Float64, F = tanh(h Wᵀ + x). Whatever is written, warned, raised or put into the result counts as said.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.frame import Effort, Figures, Row, Rows, short
from benchmarks.jax_peers import JaxOpt, Optimistix
from benchmarks.loops import Network, by_hand_to, error
from benchmarks.peers import Peer, Steadygrad, Stop, TorchDEQ, TorchOpt, Undeclared, XiTorch

PEERS: list[Peer] = [Steadygrad(), TorchDEQ(), TorchOpt(), XiTorch(), JaxOpt(), Optimistix()]
WELL = Stop(rtol=1e-10, steps=2000)
SMALL = Stop(rtol=1e-10, steps=5)
"""A solver with a tolerance that it cannot reach in its steps."""
RADIUS = 0.95
RIGHT = 1e-5
"""A result is right to this relative error; WELL leaves far less."""
ANGLE = math.pi / 2
"""A quarter turn: v and Jᵀv are then orthogonal, which is what fools a power method most."""
WAYS = {
    "adjoint stopped early": f"backward solver stopped after {SMALL.steps} steps, forward to 1e-10, ρ(W) = {RADIUS}",
    "forward stopped early": f"forward solver stopped after {SMALL.steps} steps, backward to 1e-10, ρ(W) = {RADIUS}",
    "second derivative": "d²L/dt² along a random direction of W, ρ(W) = 0.8, against differences of exact gradients",
    "forward derivative": "dL/dt along a random direction of W by jvp, ρ(W) = 0.8, against the exact gradient",
    "vmap of grad": "gradients of x at three inputs by vmap of grad, ρ(W) = 0.8, against one after the other",
    "spectral radius": "ρ(J) of a rotation by a quarter turn times 0.9",
}


def rows(effort: Effort) -> Rows:
    """A row a case and peer; without peers there is the library alone."""
    measures: dict[str, Callable[[Peer], Figures]] = {
        "adjoint stopped early": partial(stopped_early, forward=WELL, adjoint=SMALL),
        "forward stopped early": partial(stopped_early, forward=SMALL, adjoint=WELL),
        "second derivative": second_derivative,
        "forward derivative": forward_derivative,
        "vmap of grad": vmap_of_grad,
        "spectral radius": spectral_radius,
    }
    for case, measure in measures.items():
        for peer in [*PEERS, Undeclared()] if case == "second derivative" else PEERS:
            if peer.installed:
                yield Row(f"{case}: {peer.name}", f"{WAYS[case]}; {peer.name} by {peer.by}; float64", partial(measure, peer))


def stopped_early(peer: Peer, forward: Stop, adjoint: Stop) -> Figures:
    """The error of a gradient whose solver had no time, and what was said."""
    if forward is SMALL and not peer.has_forward:
        return {"peer": peer.name, "error": None, "said": {}, "verdict": f"{peer.name} has no forward solver"}
    network = Network.random(8, 32, RADIUS, torch.float64)
    exact = by_hand_to(network, 1e-13).gradient
    found, said = listen(peer.prepare(network, forward, adjoint))
    figures: Figures = {"peer": peer.name, "error": None if found is None else short(error(found.gradient, exact))}
    if found is not None:
        flag = found.adjoint_flag if adjoint is SMALL else found.forward_flag
        said |= {"result": flag} if flag else {}
        figures["estimate"] = None if found.estimate is None else short(found.estimate)
    return figures | {"said": said, "verdict": verdict(said, figures["error"])}


def second_derivative(peer: Peer) -> Figures:
    """V·H·V by the peer against central differences of gradients that are exact to twelve digits."""
    network = Network.random(4, 16, 0.8, torch.float64)
    V = torch.randn(16, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    step = 1e-5
    sides = [by_hand_to(moved(network, side * step * V), 1e-14).gradient for side in (1, -1)]
    expected = float(((sides[0] - sides[1]) * V).sum()) / (2 * step)
    found, said = listen(lambda: peer.curvature(network, V, WELL))
    off = None if found is None else short(abs(found - expected) / abs(expected))
    return {"peer": peer.name, "error": off, "said": said, "verdict": verdict(said, off)}


def forward_derivative(peer: Peer) -> Figures:
    """dL/dt by the peer's forward differentiation against the exact gradient along the same direction."""
    network = Network.random(4, 16, 0.8, torch.float64)
    V = torch.randn(16, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = float((by_hand_to(network, 1e-14).gradient * V).sum())
    found, said = listen(lambda: peer.slope(network, V, WELL))
    off = None if found is None else short(abs(found - expected) / abs(expected))
    return {"peer": peer.name, "error": off, "said": said, "verdict": verdict(said, off)}


def vmap_of_grad(peer: Peer) -> Figures:
    """Gradients of x at several inputs at once against those taken one after the other by dense algebra."""
    network = Network.random(4, 16, 0.8, torch.float64)
    inputs = torch.stack([network.x, 2 * network.x, -3 * network.x])
    expected = torch.stack([gradient_of_input(network.W.detach(), x) for x in inputs])
    found, said = listen(lambda: peer.each_gradient(network, inputs, WELL))
    off = None if found is None else short(error(found, expected))
    return {"peer": peer.name, "error": off, "said": said, "verdict": verdict(said, off)}


def gradient_of_input(W: Tensor, x: Tensor) -> Tensor:
    """d‖h*‖²/dx of h* = tanh(h* Wᵀ + x), a row at a time: D(I − DW)⁻ᵀ 2h with D = diag(1 − h²)."""
    h = torch.zeros_like(x)
    for _ in range(WELL.steps):
        h = torch.tanh(h @ W.T + x)
    slope = 1 - h.square()
    system = torch.eye(len(W), dtype=W.dtype) - slope.unsqueeze(2) * W
    return slope * torch.linalg.solve(system.mT, 2 * h.unsqueeze(2)).squeeze(2)


def spectral_radius(peer: Peer) -> Figures:
    """ρ = 0.9 as the peer estimates it."""
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    J = 0.9 * torch.block_diag(*[turn] * 4)
    try:
        found, said = listen(lambda: peer.spectral_radius(J), passing=NotImplementedError)
    except NotImplementedError as reason:
        return {"peer": peer.name, "estimate": None, "error": None, "said": {}, "verdict": str(reason)}
    off = None if found is None else short(abs(found - 0.9) / 0.9)
    return {"peer": peer.name, "estimate": found, "error": off, "said": said, "verdict": verdict(said, off)}


def moved(network: Network, by: Tensor) -> Network:
    return Network((network.W.detach() + by).requires_grad_(), network.x)


def listen(run: Callable[[], Any], passing: type[Exception] | None = None) -> tuple[Any, dict[str, str]]:
    """The result of run(), None if it raised, and everything that was said on the way, each cut to its first line."""
    said: dict[str, str] = {}
    out, result = io.StringIO(), None
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        warnings.simplefilter("always")
        try:
            result = run()
        except Exception as refusal:
            if passing is not None and isinstance(refusal, passing):
                raise
            said["exception"] = first_line(message(refusal))
    about = [warning for warning in caught if not issubclass(warning.category, (DeprecationWarning, FutureWarning))]
    if about:
        said["warning"] = first_line(f"{about[-1].category.__name__}: {about[-1].message}")
    if "exception" not in said and out.getvalue().strip():
        said["output"] = first_line(out.getvalue().strip())
    return result, said


def message(refusal: Exception) -> str:
    """The words of an exception; of one that JAX carries out of a compiled program, those of the exception inside it."""
    inner = re.findall(r"^\S*(?:Error|Exception): (?!INTERNAL).+", str(refusal), flags=re.M)
    return inner[-1] if inner else f"{type(refusal).__name__}: {refusal}"


def first_line(text: str, most: int = 200) -> str:
    line = text.strip().splitlines()[0]
    return line if len(line) <= most else line[: most - 1] + "…"


def verdict(said: dict[str, str], off: float | None) -> str:
    """In a few words: right; refused; or wrong, and how that could be known."""
    if "exception" in said:
        return "refused"
    if off is not None and off <= RIGHT:
        return "right"
    if "warning" in said or "output" in said:
        return "wrong, with a warning"
    return "wrong, only the result tells" if "result" in said else "wrong, silently"
