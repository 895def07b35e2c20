"""The paper's networks in their corrected mode, trained for a moment with fixed seeds: the only file that knows experiments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import steadygrad as sg
from benchmarks.families import Adjoint
from steadygrad.paper.experiments.citation import PublishedGRU, neighbours
from steadygrad.paper.experiments.citation import data as citation_data
from steadygrad.paper.experiments.citation.experiment import build
from steadygrad.paper.experiments.citation.presets import CORRECTED as CITATION
from steadygrad.paper.experiments.citation.training import Learning as LearningCitation
from steadygrad.paper.experiments.citation.training import predict
from steadygrad.paper.experiments.hopfield import Hopfield, digits
from steadygrad.paper.experiments.hopfield.presets import CORRECTED as HOPFIELD
from steadygrad.paper.experiments.hopfield.presets import SMALL
from steadygrad.paper.experiments.hopfield.training import Learning as LearningHopfield
from steadygrad.paper.experiments.hopfield.training import objective, settle

EXACT_TERMS = 3000
"""Terms of the Neumann series in float64 that stand for the exact adjoint: 0.99³⁰⁰⁰ is 8e-14."""


@dataclass
class Training:
    """One training in progress: `step()` is one epoch or pass, `loss()` that of the training set without dropout."""

    network: Any
    epochs: Iterator[Any]
    loss: Any

    def step(self) -> None:
        next(self.epochs)


def cora(gradient: Any, small: bool = False) -> Training:
    """The restarted diffusion of the corrected mode on Cora (a planted graph if small), by this gradient method."""
    name = "planted" if small else "cora"
    config = replace(CITATION[name], epochs=10_000)
    graph = citation_data.graph(name)
    split = citation_data.split(graph.nodes, 0, config.share)
    torch.manual_seed(0)
    network = build(config, graph, citation_data.scaled(graph.features, config.length))

    def loss() -> float:
        scores = predict(network, config.forward).scores
        return float(cross_entropy(scores[split.train], graph.labels[split.train]))

    learning = LearningCitation(network, graph.labels, split, config.schedule, lambda _: gradient)
    return Training(network, iter(learning), loss)


def hopfield(gradient: Any, passes: int, small: bool = False) -> Training:
    """The associative memory of the corrected mode, ten digits, by this gradient method."""
    config = replace(HOPFIELD, passes=passes, warmup=min(HOPFIELD.warmup, passes), **({"rate": 4e-3} | SMALL if small else {}))
    images = digits(config.side)
    network = Hopfield(images.shape[1], config.hidden, config.slope, config.scale, seed=0)

    def loss() -> float:
        with torch.no_grad():
            _, h = settle(network, images, config.schedule.forward, sg.Implicit(sg.Auto()))
            return float(objective(network, h, images, config.readout))

    return Training(network, iter(LearningHopfield(network, images, config.schedule, lambda _: gradient)), loss)


def published_gru(name: Any, size: int) -> tuple[PublishedGRU, Tensor]:
    """The paper's network on a graph, untrained, on that many principal components; and the (2, edges) it passes messages on."""
    graph = citation_data.graph(name)
    network = PublishedGRU(neighbours(graph.edge_index, graph.nodes), citation_data.reduced(name, size), graph.classes)
    return network, graph.edge_index


@cache
def trained_cora(small: bool) -> Adjoint:
    """The adjoint equation of the network on Cora after thirty epochs."""
    training = cora(sg.Implicit(sg.Auto()), small)
    for _ in range(30):
        training.step()
    training.network.eval()
    dynamics = training.network.dynamics()
    return at_rest(lambda h: dynamics.update(h), dynamics.start.detach())


@cache
def trained_hopfield(small: bool) -> Adjoint:
    """The adjoint equation of the associative memory after twenty passes over its ten digits."""
    training = hopfield(sg.Implicit(sg.Auto()), passes=20, small=small)
    for _ in range(20):
        training.step()
    network = training.network
    images = digits(14 if small else 28)
    clamped = network.clamped(images).detach()
    return at_rest(lambda h: network(h, clamped.to(h.dtype)), network.start(images))


def at_rest(update: Any, start: Tensor) -> Adjoint:
    """The adjoint equation of h = update(h) at its steady state, with a random cotangent; exact by the series in float64."""
    with torch.no_grad():
        h = start
        for _ in range(EXACT_TERMS):
            h = update(h)
    b = torch.randn(h.shape, generator=torch.Generator().manual_seed(2))
    exact = _series(update, h, b)
    return Adjoint(lambda h, c: update(h) + c, h, torch.zeros_like(h).requires_grad_(), b, exact)


def _series(update: Any, h: Tensor, b: Tensor) -> Tensor:
    """Σₖ (Jᵀ)ᵏ b with sums in float64. The products are those of float32, which is what the solvers see, refined below.

    J is that of float32 weights at h; a product of float32 rounds at 1e-7 and its error does not grow in a contraction.
    """
    leaf = h.clone().requires_grad_()
    image = update(leaf)
    z, v = b.double(), b
    for _ in range(EXACT_TERMS):
        (v,) = torch.autograd.grad(image, leaf, v, retain_graph=True)
        z = z + v.double()
        if float(v.norm()) < 1e-9 * float(b.norm()):
            break
    return z
