"""The paper's second experiment: documents of a citation graph classified from 1 % of labels, by each gradient method."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from steadygrad import Auto, Picard
from steadygrad.models.graph import neighbours, normalised
from steadygrad.paper.datasets import Graph
from steadygrad.paper.experiments.checkpoint import NOT_KEPT, Checkpoint
from steadygrad.paper.experiments.citation import data
from steadygrad.paper.experiments.citation.data import Name, Split
from steadygrad.paper.experiments.citation.log import TrainingLog
from steadygrad.paper.experiments.citation.model import APPNP, GCN, Diffusion, Encoder, Linear, Network, PublishedGRU
from steadygrad.paper.experiments.citation.training import (
    REFERENCES,
    CitationMethod,
    Learning,
    Schedule,
    accuracy,
    answer,
    logistic,
)
from steadygrad.paper.experiments.citation.turns import COMPARED, in_turns
from steadygrad.paper.experiments.experiment import ReportProgress, before
from steadygrad.paper.experiments.methods import CHECKPOINTED, SPELLED, Gradient, gradient
from steadygrad.paper.records import Record
from steadygrad.peak_memory import peak_memory
from steadygrad.sparse import SparseMatrix


@dataclass(frozen=True)
class CitationConfig:
    """One trial: a graph with its split, a network, a schedule and a gradient method."""

    graph: Name = "cora"
    """cora, pubmed, or a small planted partition"""
    mode: Literal["as-published", "corrected"] = "corrected"
    """as-published: a GRU whose start is x and whose input is the sum of the neighbours, T steps; corrected: restarted diffusion,
    x entering at every step, a contraction by its parametrisation, to a tolerance"""
    method: CitationMethod = field(default="auto", metadata=SPELLED)
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
    linearise: Literal["last", "previous"] = field(default="last", metadata=before("last"))
    """where implicit methods take J: at h_T, or at h_{T−1} as Listing 1 and the released code do"""
    ridge: float = field(default=0.0, metadata=before(0.0))
    """added to the diagonal of CG-RBP's normal matrix; the released code has 1e-5"""
    edges: Literal["once", "listed"] = field(default="once", metadata=before("once"))
    """once: every pair of linked nodes counts once; listed: as often as the source lists it (302 entries more on Cora)"""
    outputs: int = field(default=0, metadata=before(0))
    """outputs of the read-out (as published); 0: one a class; the released code has 7 on Pubmed too, which has 3 classes"""
    diagnose: bool = False
    """also measure the memory of an epoch and ρ(J) before training, and diagnose the trained network (half a minute on Cora);
    with bptt-sqrt and bptt-log, measure an epoch by several methods in turns"""

    @property
    def turns(self) -> bool:
        """Whether an epoch is measured by several methods in turns: where BPTT in little memory is diagnosed."""
        return self.diagnose and self.method in CHECKPOINTED

    @property
    def forward(self) -> Picard:
        return Picard(max_steps=self.updates, rtol=self.rtol)

    @property
    def schedule(self) -> Schedule:
        previous = self.linearise == "previous"
        return Schedule(self.epochs, self.rate, self.momentum, self.weight_decay, self.forward, self.warm, previous)


@dataclass(frozen=True)
class Trained:
    network: Network
    scores: Tensor
    """(nodes, classes), of the best validation epoch."""
    result: dict[str, Any]


def run(config: CitationConfig, report: ReportProgress, checkpoint: Checkpoint = NOT_KEPT) -> dict[str, Any]:
    """Train on the 1 % and score the test nodes at the best validation epoch."""
    graph = data.graph(config.graph, config.edges)
    split = data.split(graph.nodes, config.seed, config.share)
    features = data.reduced(config.graph, config.components) if config.components else graph.features
    return train(config, graph, split, report, features, checkpoint).result


def quiet(done: int, total: int, note: str) -> None: ...


def train(
    config: CitationConfig,
    graph: Graph,
    split: Split,
    report: ReportProgress = quiet,
    features: Tensor | None = None,
    checkpoint: Checkpoint = NOT_KEPT,
) -> Trained:
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
        log = TrainingLog(config, network, graph.labels, split)
        initial = log.before() if config.diagnose else {}
        one_epoch = partial(_one_epoch, config, network, graph.labels, split)
        turns = in_turns(one_epoch, _compared(config), list(network.parameters())) if config.turns else {}
        epochs: list[float] = []
        learning = Learning(network, graph.labels, split, config.schedule, partial(_gradient, config))
        if saved := checkpoint.load():
            learning.load_state_dict(saved["learning"])
            log.load_state_dict(saved["log"])
            epochs = saved["seconds"]
        for epoch in learning:
            if not math.isfinite(epoch.loss):
                break
            epochs.append(epoch.seconds)
            log.count(epoch)
            if epoch.number % config.validate_every == 0:
                log.look(epoch.number, epoch)
            report(epoch.number + 1, config.epochs, f"loss {epoch.loss:.2f}, validation {log.best_validation:.1%}")
            learning.step()
            if not config.warm and learning.number < config.epochs:  # what a warm start starts from is not kept
                checkpoint.save(lambda: {"learning": learning.state_dict(), "log": log.state_dict(), "seconds": epochs})
        log.look(len(epochs))
        measured: dict[str, Any] = {
            "training_seconds": sum(epochs),
            "milliseconds_per_epoch": 1e3 * statistics.median(epochs) if epochs else None,
        }
        result = {**log.result(), **initial, **log.after()}
        if config.diagnose:
            measured["epoch_mb"] = peak_memory(partial(one_epoch, _gradient(config, 0) or "auto")) / 2**20
        if turns:
            measured["turns"] = turns
    return Trained(network, log.scores, {**result, "measured": measured})


def build(config: CitationConfig, graph: Graph, features: Tensor) -> Network:
    """The network of the config, for this graph."""
    if config.mode == "as-published":
        outputs = config.outputs or graph.classes
        if outputs < graph.classes:
            raise ValueError(f"outputs must be 0, or at least the {graph.classes} classes; got {outputs}.")
        if config.method == "linear":
            return Linear(features, outputs, config.seed)
        if config.method in REFERENCES:
            raise ValueError(f"{config.method} is a reference for the corrected mode; take --mode corrected.")
        return PublishedGRU(neighbours(graph.edge_index, graph.nodes), features, outputs, config.seed)
    if config.method == "linear":
        raise ValueError("linear is the released code's baseline; take --mode as-published.")
    encode = Encoder(SparseMatrix.of_dense(features), config.hidden, graph.classes, config.dropout, config.seed)
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
    return gradient(config.method, config.steps, 1_000_003 * (config.seed + 1) + epoch, auto, config.ridge)


def _compared(config: CitationConfig) -> dict[str, Gradient]:
    return {m: found for m in COMPARED if (found := _gradient(replace(config, method=m), 0)) is not None}


def _one_epoch(config: CitationConfig, network: Network, labels: Tensor, split: Split, method: Gradient | str) -> int:
    """Forward and backward pass, for measurements: calls of F."""
    network.train()
    found = answer(network, config.forward, method, previous=config.schedule.previous)
    torch.nn.functional.cross_entropy(found.scores[split.train], labels[split.train]).backward()
    return found.evaluations


def headline(records: Sequence[Record]) -> str:
    """The running result in a few words."""
    found: dict[str, list[float]] = {}
    for record in records:
        if record.result is not None and record.config["method"] not in REFERENCES:
            place = f"{record.config['graph']} {record.config['mode']}"
            found.setdefault(place, []).append(record.result["test_accuracy"])
    return "; ".join(f"{place} {statistics.fmean(values):.1%}" for place, values in sorted(found.items())) or "no trial yet"
