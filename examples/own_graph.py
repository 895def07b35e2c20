"""Classify the nodes of your own graph from a few labels, by the steady state of a learned diffusion.

`sg.models.GraphClassifier` takes features (N, F), edge_index (2, E), labels (N,) and boolean masks, as plain tensors; a
torch_geometric `Data` object has them all. Here: Zachary's karate club, 34 members, two labels to learn from, no features but who
somebody is. Change `club()` to load your own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import steadygrad as sg
from steadygrad.models import GraphClassifier
from steadygrad.models.graph import normalised

# Zachary 1977: who met whom outside of the club, and who went with the officer when it split.
FRIENDS = """0-1 0-2 0-3 0-4 0-5 0-6 0-7 0-8 0-10 0-11 0-12 0-13 0-17 0-19 0-21 0-31 1-2 1-3 1-7 1-13 1-17 1-19 1-21 1-30 2-3 2-7
2-8 2-9 2-13 2-27 2-28 2-32 3-7 3-12 3-13 4-6 4-10 5-6 5-10 5-16 6-16 8-30 8-32 8-33 9-33 13-33 14-32 14-33 15-32 15-33 18-32
18-33 19-33 20-32 20-33 22-32 22-33 23-25 23-27 23-29 23-32 23-33 24-25 24-27 24-31 25-31 26-29 26-33 27-33 28-31 28-33 29-32
29-33 30-32 30-33 31-32 31-33 32-33"""
OFFICER = (9, 14, 15, 18, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33)


@dataclass
class Club:
    """What torch_geometric calls Data."""

    x: Tensor
    edge_index: Tensor
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor


def club() -> Club:
    """Learn from the instructor (0) and the officer (33), choose the epoch by eight members, score the rest."""
    edges = torch.tensor([list(map(int, pair.split("-"))) for pair in FRIENDS.split()]).T  # either direction will do
    labels = mask(*OFFICER).long()
    train, validation = mask(0, 33), mask(*range(2, 34, 4))
    return Club(torch.eye(34), edges, labels, train, validation, ~(train | validation))


def mask(*members: int) -> Tensor:
    out = torch.zeros(34, dtype=torch.bool)
    out[list(members)] = True
    return out


def of_torch_geometric() -> Club:
    """The same as a Data object, where torch_geometric is installed: whatever has these attributes will do."""
    from torch_geometric.data import Data

    return Data(**vars(club()))


@dataclass
class Found:
    club: Club
    classes: Tensor
    accuracy: float


def main(small: bool = False) -> Found:
    torch.set_num_threads(1)  # the graph is small: threads would only wait for each other
    try:
        data = of_torch_geometric()
    except ImportError:
        data = club()
    classifier = GraphClassifier(hidden=16, dropout=0.0, weight_decay=0.0, epochs=15 if small else 40)
    classifier.fit(data.x, data.edge_index, data.y, data.train_mask, data.val_mask)
    accuracy = classifier.score(data.x, data.edge_index, data.y, data.test_mask)
    network, adjacency = classifier.network_, normalised(data.edge_index, 34)
    z = network.encode(data.x).detach()
    diagnosis = sg.diagnose(network.diffuse.update(z, adjacency), network(data.x, adjacency).detach(), quick=True)
    print(f"{accuracy:.1%} of {int(data.test_mask.sum())} test members right; α = {network.diffuse.alpha.item():.3f}, ", end="")
    print(f"ρ(J) = {diagnosis.spectral_radius:.3f}; the steady state is {'' if diagnosis.trustworthy else 'not '}to be trusted")
    return Found(data, classifier.predict(data.x, data.edge_index), accuracy)


def places(edges: Tensor) -> Tensor:
    """Where to draw the nodes: the two slowest modes of diffusion on the graph."""
    A = torch.zeros(34, 34)
    A[edges[0], edges[1]] = A[edges[1], edges[0]] = 1
    scale = A.sum(1).rsqrt()
    modes = torch.linalg.eigh(torch.eye(34) - scale.unsqueeze(1) * A * scale)[1]
    return modes[:, 1:3] * scale.unsqueeze(1)


def draw(found: Found, path: str) -> None:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    edges = found.club.edge_index
    x, y = places(edges).T.tolist()
    for a, b in edges.T.tolist():
        axis.plot([x[a], x[b]], [y[a], y[b]], color="#cccccc", linewidth=0.6, zorder=1)
    for kind, colour, marker, name in ((0, "#0072B2", "o", "instructor"), (1, "#D55E00", "s", "officer")):
        nodes = (found.classes == kind).nonzero().flatten().tolist()
        where = [x[i] for i in nodes], [y[i] for i in nodes]
        axis.scatter(*where, color=colour, marker=marker, s=60, label=f"goes with the {name}")
    beside = {"xytext": (10, 12), "textcoords": "offset points", "fontsize": 9, "arrowprops": {"arrowstyle": "-"}}
    for i in found.club.train_mask.nonzero().flatten().tolist():
        axis.annotate("label given", (x[i], y[i]), **beside)
    axis.set(title="Zachary's karate club, from two labels", xlabel="slowest mode of diffusion", ylabel="second slowest")
    axis.legend(loc="upper left")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="fewer epochs")
