"""Graphs with labelled nodes: the paper's two, a planted one, a user's own; their splits and their features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from steadygrad.paper.datasets import Graph, citations, cora, pubmed, undirected

Name = Literal["cora", "pubmed", "planted"]
PLANTED = 240
"""Nodes of the planted graph."""


@dataclass(frozen=True, eq=False)
class Split:
    """The nodes whose labels are learnt from, those that choose the epoch, and those that are scored: (count,) int64 each."""

    train: Tensor
    validation: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if not len(getattr(self, name)):
                raise ValueError(f"the {name} split is empty; give every split one node at least.")
        both = torch.cat([self.train, self.validation, self.test])
        if len(both.unique()) < len(both):
            raise ValueError("a node is in two splits; train, validation and test must have no node in common.")


def split(nodes: int, seed: int, share: float = 0.01) -> Split:
    """A random split by `seed`: a `share` to learn from, 49 % for validation, the rest for the test, as in the paper.

    Purely random: on Cora some seeds leave a class without a node to learn from (0, 4 and 6 of the first ten).
    """
    if not 0 < share < 0.51:
        raise ValueError(f"share must lie between 0 and 0.51, since 49 % are for validation; got {share}.")
    order = torch.from_numpy(np.random.default_rng(seed).permutation(nodes))
    first = round(share * nodes)
    second = first + round(0.49 * nodes)
    return Split(order[:first], order[first:second], order[second:])


def own(
    edge_index: Tensor,
    features: Tensor,
    labels: Tensor,
    *,
    train_mask: Tensor,
    val_mask: Tensor,
    test_mask: Tensor,
    name: str = "own",
) -> tuple[Graph, Split]:
    """A user's own graph: (2, E) edges, (N, F) features, (N,) labels from 0 on, and (N,) boolean masks.

    Features may be sparse or of another precision; they become dense float32, which the networks work in. Edges become
    undirected, duplicates and self loops are dropped (the networks add the loops that they need). Isolated nodes and nodes
    without features may stay.
    """
    if features.layout != torch.strided:
        features = features.to_dense()
    if features.is_floating_point():
        features = features.float()
    if not features.isfinite().all():
        raise ValueError("features hold inf or NaN; replace them, for instance by zeros.")
    if labels.numel() and int(labels.min()) < 0:
        raise ValueError(
            f"labels go down to {int(labels.min())}; they must be 0, 1, 2, … for every node. Nodes without a label may have any: "
            "leave them out of the masks."
        )
    classes = int(labels.max()) + 1 if labels.numel() else 0
    graph = Graph(name, features, labels, undirected(edge_index), tuple(map(str, range(classes))))
    found: list[Tensor] = []
    for mask, what in ((train_mask, "train_mask"), (val_mask, "val_mask"), (test_mask, "test_mask")):
        if mask.dtype != torch.bool or mask.shape != (graph.nodes,):
            raise ValueError(
                f"{what} must be bool of shape ({graph.nodes},), one a node; got {mask.dtype} of shape {tuple(mask.shape)}."
                + (f" Of several splits choose one: {what}[:, 0]." if mask.ndim == 2 else "")
            )
        found.append(mask.nonzero().squeeze(1))
    return graph, Split(*found)


def of_data(data: Any) -> tuple[Graph, Split]:
    """The same from a `torch_geometric.data.Data` object, or anything with its attributes; the library is not needed."""
    wanted = ("edge_index", "x", "y", "train_mask", "val_mask", "test_mask")
    lacking = [name for name in wanted if getattr(data, name, None) is None]
    if lacking:
        raise ValueError(f"the data have no {', '.join(lacking)}; a graph needs {', '.join(wanted)}.")
    labels = data.y.squeeze(1) if data.y.ndim == 2 and data.y.shape[1] == 1 else data.y
    masks = {name: getattr(data, name) for name in wanted[3:]}
    return own(data.edge_index, data.x.float(), labels, **masks)


def planted(nodes: int = PLANTED, classes: int = 3, features: int = 24, seed: int = 0) -> Graph:
    """A planted partition: nodes of a class are linked with chance 16/n, others with 1/n, and their features hint at it.

    The features are zeros and ones, more often one in the class's own block.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(nodes) % classes
    chance = torch.where(labels.unsqueeze(0) == labels.unsqueeze(1), 16.0, 1.0) / nodes
    links = (torch.rand(nodes, nodes, generator=generator) < chance).triu(1).nonzero().T
    block = torch.arange(features) * classes // features
    often = torch.where(labels.unsqueeze(1) == block.unsqueeze(0), 0.35, 0.15)
    words = (torch.rand(nodes, features, generator=generator) < often).float()
    return Graph("planted", words, labels, undirected(links), tuple(map(str, range(classes))))


@cache  # a worker runs many trials on the same graph
def graph(name: Name, edges: Literal["once", "listed"] = "once") -> Graph:
    """An embedded graph; its links once, or as often as the source lists them, without self links."""
    found = {"cora": cora, "pubmed": pubmed, "planted": planted}[name]()
    if edges == "once" or name == "planted":
        return found
    links = citations(name)
    links = links[:, links[0] != links[1]]
    return replace(found, edge_index=torch.cat([links, links.flip(0)], dim=1))


def principal(features: Tensor, size: int) -> Tensor:
    """The first `size` principal components, by scikit-learn; the paper has 64 for Cora and 16 for Pubmed."""
    from sklearn.decomposition import PCA  # pyright: ignore[reportMissingTypeStubs]  # slow to import, see `logistic`

    if not 0 < size <= min(features.shape):
        raise ValueError(f"{tuple(features.shape)} features have at most {min(features.shape)} components; got {size}.")
    reduced = PCA(size, random_state=0).fit_transform(features.numpy())
    return torch.from_numpy(np.ascontiguousarray(reduced, dtype=np.float32))


@cache
def reduced(name: Name, size: int) -> Tensor:
    """The principal components of an embedded graph."""
    return principal(graph(name).features, size)


def scaled(features: Tensor, length: float = 4.0) -> Tensor:
    """Rows of one length; a row of zeros stays."""
    return length * torch.nn.functional.normalize(features, dim=1, eps=1e-9)
