"""The data sets beside the paper's table, counted from the files that the wheel carries."""

from __future__ import annotations

from steadygrad.paper import datasets
from steadygrad.paper.report.text import number

PAPER = {"cora": (2708, 5429, 7, 1433), "pubmed": (19717, 44338, 3, 500)}


def rows() -> list[tuple[str, ...]]:
    """Nodes, links, classes, features, linked pairs; the paper's count in brackets where it is another."""
    made: list[tuple[str, ...]] = []
    for name, paper in PAPER.items():
        graph = getattr(datasets, name)()
        counts = (graph.nodes, datasets.citations(name).shape[1], graph.classes, graph.features.shape[1])
        cells = [number(a) if a == b else f"{number(a)} ({number(b)})" for a, b in zip(counts, paper, strict=True)]
        made.append((name.capitalize(), *cells, number(graph.edge_index.shape[1] // 2)))
    images = datasets.mnist()
    return [*made, ("MNIST", f"{number(len(images))} images", "–", number(int(images.labels.max()) + 1), "784", "–")]
