"""Classes of nodes from a few labels, on one's own graph: a small network of each node, and a diffusion of what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

import steadygrad as sg
from steadygrad.method import check_count
from steadygrad.models.estimator import Estimator
from steadygrad.models.graph.network import GraphNetwork
from steadygrad.models.graph.propagation import normalised


class GraphClassifier(Estimator):
    """Learn the classes of some nodes, predict those of all, by a `GraphNetwork`.

    The network has one hidden layer and sees each node alone; what nodes know of each other comes by the diffusion, whose reach
    1/α is learned. Features are scaled to rows of one length. With `val_mask` the weights of the epoch that did best there are
    kept, the last ones otherwise. The memory of a step does not grow with how far the diffusion reaches.

    >>> ring = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    >>> labels = torch.tensor([0, 0, 0, 1, 1, 1])
    >>> known = torch.tensor([False, True, False, False, True, False])
    >>> found = GraphClassifier(dropout=0.0, epochs=20).fit(torch.eye(6), ring, labels, known)
    >>> found.predict(torch.eye(6), ring).tolist()
    [0, 0, 0, 1, 1, 1]
    >>> found.network_.diffuse.solution.converged
    True
    """

    def __init__(
        self,
        hidden: int = 64,
        dropout: float = 0.5,
        alpha: float = 0.1,
        epochs: int = 150,
        rate: float = 0.02,
        weight_decay: float = 0.005,
        seed: int = 0,
    ) -> None:
        """`alpha` is the share of a node's own scores in each step of the diffusion, at first; decay is for the first layer."""
        for name, count in {"hidden": hidden, "epochs": epochs}.items():
            check_count(name, count, least=1)
        self.hidden, self.dropout, self.alpha = hidden, dropout, alpha
        self.epochs, self.rate, self.weight_decay, self.seed = epochs, rate, weight_decay, seed

    @torch.enable_grad()
    def fit(
        self, features: Tensor, edge_index: Tensor, labels: Tensor, train_mask: Tensor, val_mask: Tensor | None = None
    ) -> Self:
        """Learn from the nodes in `train_mask`: (N, F) features, (2, E) edges, (N,) labels from 0 on, (N,) boolean masks.

        Of a torch_geometric `data`: fit(data.x, data.edge_index, data.y, data.train_mask, data.val_mask). Links count in both
        directions and once. Labels outside of the masks are not looked at.
        """
        x = _scaled(features)
        _check_labels(labels, train_mask, "train_mask", len(x))
        if val_mask is not None:
            _check_labels(labels, val_mask, "val_mask", len(x))
        adjacency, classes = normalised(edge_index, len(x)), int(labels[train_mask].max()) + 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = GraphNetwork(x.shape[1], classes, hidden=self.hidden, dropout=self.dropout, alpha=self.alpha)
            best, kept = -1.0, network.state_dict()
            for _ in self._epochs(network, x, adjacency, labels, train_mask):
                right = 0.0 if val_mask is None else _right(_scores(network, x, adjacency), labels, val_mask)
                if val_mask is None or right > best:
                    best, kept = right, {name: value.clone() for name, value in network.state_dict().items()}
        network.load_state_dict(kept)
        self.network_ = network.eval()
        return self

    def predict_proba(self, features: Tensor, edge_index: Tensor) -> Tensor:
        """(N, classes) probabilities, of this graph or of another with the same features."""
        if not hasattr(self, "network_"):
            raise RuntimeError("nothing is learned yet; call fit(features, edge_index, labels, train_mask) first.")
        x = _scaled(features)
        known = next(self.network_.encode.parameters()).shape[1]
        if x.shape[1] != known:
            raise ValueError(f"features must have the {known} columns of those that were learned from; got {x.shape[1]}.")
        return _scores(self.network_, x, normalised(edge_index, len(x))).softmax(dim=1)

    def predict(self, features: Tensor, edge_index: Tensor) -> Tensor:
        """(N,) classes."""
        return self.predict_proba(features, edge_index).argmax(dim=1)

    def score(self, features: Tensor, edge_index: Tensor, labels: Tensor, mask: Tensor) -> float:
        """The share of the nodes in the mask whose class is predicted right."""
        _check_labels(labels, mask, "mask", len(features))
        return _right(self.predict_proba(features, edge_index), labels, mask)

    def _epochs(
        self, network: GraphNetwork, x: Tensor, adjacency: sg.SparseMatrix, labels: Tensor, train: Tensor
    ) -> Iterator[None]:
        """Train, an epoch a turn, each over the whole graph."""
        optimiser = torch.optim.Adam(network.groups(self.weight_decay), lr=self.rate)
        for _ in range(self.epochs):
            network.train()
            loss = cross_entropy(network(x, adjacency)[train], labels[train]) + network.diffuse.penalty()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            yield


@torch.no_grad()
def _scores(network: GraphNetwork, x: Tensor, adjacency: sg.SparseMatrix) -> Tensor:
    return network.eval()(x, adjacency)


def _right(scores: Tensor, labels: Tensor, mask: Tensor) -> float:
    return float((scores[mask].argmax(dim=1) == labels[mask]).double().mean())


def _scaled(features: Tensor, length: float = 4.0) -> Tensor:
    """Dense float32 rows of one length; a row of zeros stays. The length is that of the citation experiment."""
    _check_tensor(features, "features")
    x = (features if features.layout == torch.strided else features.to_dense()).detach().float()
    if x.ndim != 2 or not x.isfinite().all():
        raise ValueError(
            f"features must be finite, of shape (nodes, features); got {tuple(x.shape)}, finite: {bool(x.isfinite().all())}."
        )
    if not x.shape[1]:
        raise ValueError(f"features must have one column at least; got shape {tuple(x.shape)}.")
    x = x / x.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)  # first, lest the squares overflow
    return length * normalize(x, dim=1, eps=1e-9)


def _check_tensor(value: object, name: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(value).__name__}: torch.as_tensor makes one.")


def _check_labels(labels: Tensor, mask: Tensor, name: str, nodes: int) -> None:
    _check_tensor(labels, "labels")
    _check_tensor(mask, name)
    if mask.dtype != torch.bool or mask.shape != (nodes,) or not mask.any():
        got = f"{mask.dtype} of shape {tuple(mask.shape)} with {int(mask.sum())} nodes"
        raise ValueError(f"{name} must be bool of shape ({nodes},), one a node, with one node at least; got {got}.")
    if labels.dtype != torch.int64 or labels.shape != (nodes,) or int(labels[mask].min()) < 0:
        raise ValueError(
            f"labels must be int64 of shape ({nodes},), 0, 1, 2, … in {name}; got {labels.dtype} of shape {tuple(labels.shape)}."
        )
