"""The data sets beside the paper's table, counted from the files that the wheel carries."""

from __future__ import annotations

from steadygrad.paper import datasets
from steadygrad.paper.report.section import Table
from steadygrad.paper.report.text import number

PAPER = {"cora": (2708, 5429, 7, 1433), "pubmed": (19717, 44338, 3, 500)}
HEAD = ("nodes", "links", "classes", "features")


def table() -> Table:
    rows: list[tuple[str, ...]] = []
    for name, paper in PAPER.items():
        graph = getattr(datasets, name)()
        counts = (graph.nodes, datasets.citations(name).shape[1], graph.classes, graph.features.shape[1])
        pairs = graph.edge_index.shape[1] // 2
        cells = [
            number(ours) if ours == theirs else f"{number(ours)} ({number(theirs)})"
            for ours, theirs in zip(counts, paper, strict=True)
        ]
        rows.append((name.capitalize(), *cells, number(pairs)))
    images = datasets.mnist()
    rows.append(("MNIST", f"{number(len(images))} images", "–", number(int(images.labels.max()) + 1), "784", "–"))
    return Table(
        "theory-data",
        "The data, counted; in brackets the paper's count where it is another.",
        ("data set", *HEAD, "linked pairs"),
        tuple(rows),
        "Links as the source lists them; linked pairs: each counted once, without self links. Of MNIST the first 10,000 training "
        "images are embedded, as many as the experiments use.",
    )
