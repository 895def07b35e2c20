"""Citation graphs, corrected mode: how good truncated gradients (K = 5) are against exact ones, and what a warm start saves.

The figures behind "What K = 5 does" and "Warm start" of docs/experiments/citation.md. Five minutes on one core.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from steadygrad.experiments.citation import data
from steadygrad.experiments.citation.experiment import build, quiet, run
from steadygrad.experiments.citation.presets import CORRECTED
from steadygrad.experiments.citation.training import answer, learn
from steadygrad.experiments.methods import gradient
from steadygrad.fixedpoint import Picard
from steadygrad.linear import Auto

EXACT = Auto(rtol=1e-6, max_steps=200)
METHODS = [("bptt", 5), ("tbptt", 5), ("neumann-rbp", 5), ("cg-rbp", 5), ("cg-rbp", 60), ("rbp", 5), ("artbp-poisson", 5)]
SEEDS, EPOCHS = (100, 101), 40


def gradients(name: data.Name, seed: int = 1) -> Iterator[tuple[str, Tensor]]:
    """The gradient of the encoder's weights after thirty epochs of auto, without dropout, by each method."""
    config = replace(CORRECTED[name], seed=seed, epochs=30)
    graph = data.graph(name)
    split = data.split(graph.nodes, seed)
    torch.manual_seed(seed)
    network = build(config, graph, data.scaled(graph.features, config.length))
    for _ in learn(network, graph.labels, split, config.schedule, lambda _: gradient("auto", 5, 0, EXACT)):
        pass
    network.eval()
    for method, steps in [("auto", 5), *METHODS]:
        network.zero_grad()
        found = answer(network, Picard(max_steps=400, rtol=1e-6), gradient(method, steps, 7, EXACT))
        cross_entropy(found.scores[split.train], graph.labels[split.train]).backward()
        yield f"{method} ({steps})", torch.cat([p.grad.flatten() for p in network.encode.parameters() if p.grad is not None])


def truncation() -> None:
    print(f"{'':<8}{'method':<20}{'cosine':>8}{'length':>10}   against auto, solved to 1e-6")
    for name in ("cora", "pubmed"):
        found = gradients(name)
        _, exact = next(found)
        for method, g in found:
            print(f"{name:<8}{method:<20}{float(cosine_similarity(g, exact, 0)):>8.3f}{float(g.norm() / exact.norm()):>10.3g}")


def warm_start() -> None:
    print(f"\n{'':<8}{'dropout':>8}{'cold':>8}{'warm':>8}   evaluations of F an epoch, seeds {SEEDS}, {EPOCHS} epochs")
    for name in ("cora", "pubmed"):
        for dropout in (CORRECTED[name].dropout, 0.0):
            config = replace(CORRECTED[name], dropout=dropout, epochs=EPOCHS, validate_every=EPOCHS)
            counts = [
                sum(run(replace(config, warm=warm, seed=seed), quiet)["evaluations"] for seed in SEEDS) / (EPOCHS * len(SEEDS))
                for warm in (False, True)
            ]
            print(f"{name:<8}{dropout:>8}{counts[0]:>8.0f}{counts[1]:>8.0f}")


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    truncation()
    warm_start()
