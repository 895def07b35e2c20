"""The data sets beside the paper's table, counted from the files that the wheel carries."""

from __future__ import annotations

from steadygrad.paper import datasets
from steadygrad.paper.report.text import number

PAPER = {"cora": (2708, 5429, 7, 1433), "pubmed": (19717, 44338, 3, 500)}


def counts(name: str) -> list[str]:
    """Nodes, links, classes, features; the paper's count in brackets where it is another; then linked pairs."""
    graph = getattr(datasets, name)()
    ours = (graph.nodes, datasets.citations(name).shape[1], graph.classes, graph.features.shape[1])
    pairs = zip(ours, PAPER[name], strict=True)
    return [*(number(a) if a == b else f"{number(a)} ({number(b)})" for a, b in pairs), number(graph.edge_index.shape[1] // 2)]
