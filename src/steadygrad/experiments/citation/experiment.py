"""The paper's second experiment: documents of a citation graph classified from 1 % of labels, by each gradient method."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from steadygrad.datasets import Graph
from steadygrad.experiments.citation import data
from steadygrad.experiments.citation.data import Name, Split
from steadygrad.experiments.citation.model import APPNP, GCN, Diffusion, Encoder, Network, PublishedGRU
from steadygrad.experiments.citation.propagation import Sparse, neighbours, normalised
from steadygrad.experiments.citation.training import (
    REFERENCES,
    Method,
    Schedule,
    accuracy,
    answer,
    learn,
    logistic,
)
from steadygrad.experiments.citation.watching import Watch
from steadygrad.experiments.experiment import Report
from steadygrad.experiments.methods import gradient
from steadygrad.fixedpoint import Picard
from steadygrad.gradient import Gradient
from steadygrad.linear import Auto
from steadygrad.measure import peak_memory
from steadygrad.records import Record


@dataclass(frozen=True)
class CitationConfig:
    """One trial: a graph with its split, a network, a schedule and a gradient method."""

    graph: Name = "cora"
    """cora, pubmed, or a small planted partition"""
    mode: Literal["as-published", "corrected"] = "corrected"
    """as-published: a GRU whose start is x and whose input is the sum of the neighbours, T steps; corrected: restarted diffusion,
    x entering at every step, a contraction by its parametrisation, to a tolerance"""
    method: Method = "auto"
    """gradient method; baseline, appnp and gcn are other classifiers, for comparison"""
    steps: int = 5
    """K: steps of TBPTT, RBP, CG-RBP and mean of Poisson ARTBP; Neumann-RBP has K+1 terms"""
    seed: int = 0
    """seed of the split, the weights, dropout, and the draws of RBP and ARTBP"""
    share: float = 0.01
    """share of the nodes whose labels are learnt from; 49 % are for validation"""
    components: int = 0
    """principal components taken as features; 0: all features"""
    length: float = 4.0
    """length to which every node's features are scaled; 0: as they are"""
    hidden: int = 64
    """hidden units of the encoder (corrected); as published the state has as many as there are components"""
    dropout: float = 0.8
    """dropout on features and hidden units of the encoder (corrected)"""
    alpha: float = 0.05
    """share of z(x) in each step of the diffusion, at first (corrected)"""
    prior: float = 0.3
    """weight of the penalty that keeps alpha near its start (corrected)"""
    epochs: int = 150
    """epochs, each over the whole graph"""
    rate: float = 0.03
    """learning rate"""
    momentum: float | None = None
    """momentum of SGD; none: Adam"""
    weight_decay: float = 0.01
    """weight decay: of the encoder's first layer (corrected), of everything (as published)"""
    updates: int = 300
    """T: updates of the state in one solve, at most"""
    rtol: float = 1e-4
    """stop the updates once the state moves less than this, relative to its norm; 0: always take T updates"""
    products: int = 200
    """steps of auto in one adjoint solve, at most"""
    warm: bool = False
    """start each solve where the last epoch's ended; measured on Cora it costs steps, 56 to 95 with dropout, 58 to 66 without"""
    validate_every: int = 1
    """epochs between validations"""
    diagnose: bool = False
    """also measure the memory of an epoch and ρ(J) before training, and diagnose the trained network (half a minute on Cora)"""

    @property
    def forward(self) -> Picard:
        return Picard(max_steps=self.updates, rtol=self.rtol)

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.epochs, self.rate, self.momentum, self.weight_decay, self.forward, self.warm)


@dataclass(frozen=True)
class Trained:
    network: Network
    scores: Tensor
    """(nodes, classes), of the best validation epoch."""
    result: dict[str, Any]


def run(config: CitationConfig, report: Report) -> dict[str, Any]:
    """Train on the 1 % and score the test nodes at the best validation epoch."""
    graph = data.graph(config.graph)
    split = data.split(graph.nodes, config.seed, config.share)
    features = data.reduced(config.graph, config.components) if config.components else graph.features
    return train(config, graph, split, report, features).result


def quiet(done: int, total: int, note: str) -> None: ...


def train(config: CitationConfig, graph: Graph, split: Split, report: Report = quiet, features: Tensor | None = None) -> Trained:
    """Train on any graph. `features` stand in for the graph's own; the config's graph, share and components are ignored, since
    graph, split and features are given here."""
    if config.validate_every < 1:
        raise ValueError(f"validate_every must be at least 1; got {config.validate_every}.")
    x = graph.features if features is None else features
    x = data.scaled(x, config.length) if config.length else x
    if config.method == "baseline":
        return _baseline(x, graph, split)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = build(config, graph, x)
        watch = Watch(config, network, graph.labels, split)
        before = watch.before() if config.diagnose else {}
        epochs: list[float] = []
        for epoch in learn(network, graph.labels, split, config.schedule, partial(_gradient, config)):
            if not math.isfinite(epoch.loss):
                break
            epochs.append(epoch.seconds)
            watch.count(epoch)
            if epoch.number % config.validate_every == 0:
                watch.look(epoch.number, epoch)
            report(epoch.number + 1, config.epochs, f"loss {epoch.loss:.2f}, validation {watch.best_validation:.1%}")
        watch.look(len(epochs))
        measured: dict[str, Any] = {
            "training_seconds": sum(epochs),
            "milliseconds_per_epoch": 1e3 * statistics.median(epochs) if epochs else None,
        }
        result = {**watch.result(), **before, **watch.after()}
        if config.diagnose:
            measured["epoch_mb"] = peak_memory(partial(_one_epoch, config, network, graph.labels, split)) / 2**20
    return Trained(network, watch.scores, {**result, "measured": measured})


def build(config: CitationConfig, graph: Graph, features: Tensor) -> Network:
    """The network of the config, for this graph."""
    if config.mode == "as-published":
        if config.method in REFERENCES:
            raise ValueError(f"{config.method} is a reference for the corrected mode; take --mode corrected.")
        return PublishedGRU(neighbours(graph.edge_index, graph.nodes), features, graph.classes, config.seed)
    encode = Encoder(Sparse.of_dense(features), config.hidden, graph.classes, config.dropout, config.seed)
    adjacency = normalised(graph.edge_index, graph.nodes)
    match config.method:
        case "appnp":
            return APPNP(adjacency, encode, alpha=config.alpha)
        case "gcn":
            return GCN(adjacency, encode)
        case _:
            return Diffusion(adjacency, encode, alpha=config.alpha, prior=config.prior)


def _baseline(x: Tensor, graph: Graph, split: Split) -> Trained:
    scores = logistic(x, graph.labels, split)
    found = {
        "validation_accuracy": accuracy(scores, graph.labels, split.validation),
        "test_accuracy": accuracy(scores, graph.labels, split.test),
    }
    network = torch.nn.Identity()
    return Trained(network, scores, found)  # pyright: ignore[reportArgumentType]


def _gradient(config: CitationConfig, epoch: int) -> Gradient | None:
    """The method of an epoch: RBP and ARTBP draw anew each time."""
    if config.method in REFERENCES:
        return None
    auto = Auto(rtol=config.rtol or None, max_steps=config.products)
    return gradient(config.method, config.steps, 1_000_003 * (config.seed + 1) + epoch, auto)


def _one_epoch(config: CitationConfig, network: Network, labels: Tensor, split: Split) -> None:
    """Forward and backward pass, for the measurement of memory."""
    network.train()
    found = answer(network, config.forward, _gradient(config, 0) or "auto")
    torch.nn.functional.cross_entropy(found.scores[split.train], labels[split.train]).backward()


def headline(records: Sequence[Record]) -> str:
    """The running result in a few words."""
    found: dict[str, list[float]] = {}
    for record in records:
        if record.result is not None and record.config["method"] not in REFERENCES:
            place = f"{record.config['graph']} {record.config['mode']}"
            found.setdefault(place, []).append(record.result["test_accuracy"])
    return "; ".join(f"{place} {statistics.fmean(values):.1%}" for place, values in sorted(found.items())) or "no trial yet"
