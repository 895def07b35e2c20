"""Classify the nodes of your own graph by the steady state of a learned diffusion, from a few labels.

A graph is `edge_index` (2, E), features (N, F), labels (N,) and three boolean masks; a torch_geometric `Data` object has them
all, and `of_data` takes it as it is. Here: Zachary's karate club, 34 members, two labels to learn from, no features but who
somebody is. Change `club()` to load your own.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from steadygrad.paper.datasets import Graph
from steadygrad.paper.experiments.citation import CitationConfig, Split, Trained, of_data, own, train

# Zachary 1977: who met whom outside of the club, and who went with the officer when it split.
FRIENDS = """0-1 0-2 0-3 0-4 0-5 0-6 0-7 0-8 0-10 0-11 0-12 0-13 0-17 0-19 0-21 0-31 1-2 1-3 1-7 1-13 1-17 1-19 1-21 1-30 2-3 2-7
2-8 2-9 2-13 2-27 2-28 2-32 3-7 3-12 3-13 4-6 4-10 5-6 5-10 5-16 6-16 8-30 8-32 8-33 9-33 13-33 14-32 14-33 15-32 15-33 18-32
18-33 19-33 20-32 20-33 22-32 22-33 23-25 23-27 23-29 23-32 23-33 24-25 24-27 24-31 25-31 26-29 26-33 27-33 28-31 28-33 29-32
29-33 30-32 30-33 31-32 31-33 32-33"""
OFFICER = (9, 14, 15, 18, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33)
CONFIG = CitationConfig(hidden=16, dropout=0.0, alpha=0.1, rate=0.02, weight_decay=0.0, epochs=40, rtol=1e-5)


def club() -> tuple[Graph, Split]:
    """Learn from the instructor (0) and the officer (33), choose the epoch by eight members, score the rest."""
    edges = torch.tensor([list(map(int, pair.split("-"))) for pair in FRIENDS.split()]).T
    labels = torch.zeros(34, dtype=torch.int64)
    labels[list(OFFICER)] = 1
    train_mask, val_mask = mask(0, 33), mask(*range(2, 34, 4))
    return own(
        edge_index=edges,  # either direction will do
        features=torch.eye(34),
        labels=labels,
        train_mask=train_mask,
        val_mask=val_mask,
        test_mask=~(train_mask | val_mask),
    )


def mask(*members: int) -> Tensor:
    out = torch.zeros(34, dtype=torch.bool)
    out[list(members)] = True
    return out


def from_torch_geometric() -> tuple[Graph, Split]:
    """The same with a Data object, where torch_geometric is installed. Any object with these attributes will do."""
    from torch_geometric.data import Data

    graph, split = club()
    masks = {name: mask(*getattr(split, part).tolist()) for name, part in MASKS.items()}
    return of_data(Data(x=graph.features, edge_index=graph.edge_index, y=graph.labels, **masks))


MASKS = {"train_mask": "train", "val_mask": "validation", "test_mask": "test"}


def classify() -> tuple[Graph, Split, Trained]:
    try:
        graph, split = from_torch_geometric()
    except ImportError:
        graph, split = club()
    return graph, split, train(CONFIG, graph, split)


def places(graph: Graph) -> Tensor:
    """Where to draw the nodes: the two slowest modes of diffusion on the graph."""
    A = torch.zeros(graph.nodes, graph.nodes)
    A[graph.edge_index[0], graph.edge_index[1]] = A[graph.edge_index[1], graph.edge_index[0]] = 1
    scale = A.sum(1).rsqrt()
    modes = torch.linalg.eigh(torch.eye(graph.nodes) - scale.unsqueeze(1) * A * scale)[1]
    return modes[:, 1:3] * scale.unsqueeze(1)


def draw(graph: Graph, split: Split, found: Tensor, path: str) -> None:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    x, y = places(graph).T.tolist()
    for a, b in graph.edge_index.T.tolist():
        axis.plot([x[a], x[b]], [y[a], y[b]], color="#cccccc", linewidth=0.6, zorder=1)
    for kind, colour, marker, name in ((0, "#0072B2", "o", "instructor"), (1, "#D55E00", "s", "officer")):
        nodes = (found == kind).nonzero().flatten().tolist()
        axis.scatter(
            [x[i] for i in nodes], [y[i] for i in nodes], color=colour, marker=marker, s=60, label=f"goes with the {name}"
        )
    for i in split.train.tolist():
        axis.annotate(
            "label given", (x[i], y[i]), xytext=(10, 12), textcoords="offset points", fontsize=9, arrowprops={"arrowstyle": "-"}
        )
    axis.set(title="Zachary's karate club, from two labels", xlabel="slowest mode of diffusion", ylabel="second slowest")
    axis.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--picture", metavar="PATH", help="save a picture there")
    chosen = options.parse_args()
    torch.set_num_threads(1)  # the graph is small: threads would only wait for each other
    graph, split, trained = classify()
    result = trained.result
    print(graph)
    print(f"test accuracy {result['test_accuracy']:.1%} at epoch {result['best_epoch']}, α = {result['alpha']:.3f}, ", end="")
    print(f"ρ(J) = {result['spectral_radius']:.3f}")
    found = trained.scores.argmax(dim=1)
    wrong = split.test[found[split.test] != graph.labels[split.test]]
    print("wrong:", wrong.tolist() or "none", "of", len(split.test))
    if chosen.picture:
        draw(graph, split, found, chosen.picture)
