"""Citation graphs, corrected mode: how good truncated gradients (K = 5) are against exact ones, and what a warm start saves.

The figures behind "What K = 5 does" and "Warm start" of docs/experiments/citation.md. Five minutes on one core, so it runs by
`--only citation_gradients` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

import steadygrad as sg
from benchmarks.frame import Effort, Figures, Row, Rows, short
from steadygrad.paper.experiments.citation import data
from steadygrad.paper.experiments.citation.experiment import build, quiet, run
from steadygrad.paper.experiments.citation.presets import CORRECTED
from steadygrad.paper.experiments.citation.training import Learning, answer
from steadygrad.paper.experiments.methods import gradient

EXACT = sg.Auto(rtol=1e-6, max_steps=200)
METHODS = [("bptt", 5), ("tbptt", 5), ("neumann-rbp", 5), ("cg-rbp", 5), ("cg-rbp", 60), ("rbp-uniform", 5), ("artbp-poisson", 5)]
SEEDS, EPOCHS = (100, 101), 40


def rows(effort: Effort) -> Rows:
    for name in effort.pick(("cora", "pubmed"), ("planted",)):
        what = (
            f"gradient of the encoder's weights on {name} after 30 epochs of auto, against auto solved to 1e-6: cosine and length"
        )
        yield Row(f"truncation: {name}", what, partial(truncation, name, effort.pick(30, 2)))
        dropouts = (CORRECTED[name].dropout, 0.0)
        what = f"evaluations of F an epoch on {name}, seeds {SEEDS}, {EPOCHS} epochs, cold and warm, by dropout"
        yield Row(f"warm start: {name}", what, partial(warm_start, name, dropouts, effort.pick(EPOCHS, 2)))


def truncation(name: data.Name, epochs: int) -> Figures:
    torch.set_flush_denormal(True)
    found = gradients(name, epochs)
    _, exact = next(found)
    return {
        method: {"cosine": short(float(cosine_similarity(g, exact, 0))), "length": short(float(g.norm() / exact.norm()))}
        for method, g in found
    }


def gradients(name: data.Name, epochs: int, seed: int = 1) -> Iterator[tuple[str, Tensor]]:
    """The gradient of the encoder's weights after some epochs of auto, without dropout, by each method; auto's first."""
    config = replace(CORRECTED[name], seed=seed, epochs=epochs)
    graph = data.graph(name)
    split = data.split(graph.nodes, seed, config.share)
    torch.manual_seed(seed)
    network: Any = build(config, graph, data.scaled(graph.features, config.length))
    for _ in Learning(network, graph.labels, split, config.schedule, lambda _: gradient("auto", 5, 0, EXACT)):
        pass
    network.eval()
    for method, steps in [("auto", 5), *METHODS]:
        network.zero_grad()
        found = answer(network, sg.Picard(max_steps=400, rtol=1e-6), gradient(method, steps, 7, EXACT))
        cross_entropy(found.scores[split.train], graph.labels[split.train]).backward()
        yield f"{method} ({steps})", torch.cat([p.grad.flatten() for p in network.encode.parameters() if p.grad is not None])


def warm_start(name: data.Name, dropouts: tuple[float, ...], epochs: int) -> Figures:
    torch.set_flush_denormal(True)
    found: Figures = {}
    for dropout in dropouts:
        config = replace(CORRECTED[name], dropout=dropout, epochs=epochs, validate_every=epochs)
        counts = [
            sum(run(replace(config, warm=warm, seed=seed), quiet)["evaluations"] for seed in SEEDS) / (epochs * len(SEEDS))
            for warm in (False, True)
        ]
        found[f"dropout {dropout}"] = {"cold": counts[0], "warm": counts[1]}
    return found
