"""What a step of the graph network costs beside its matrix products alone, as ratios taken in one run.

The step is that of the paper's GRU on Cora and Pubmed. Its products: one sparse with the adjacency, and the state and the sum of
the neighbours with three weight matrices each. Beside it the same step by nn.GRUCell, and with messages added up edge by edge
(index_add), as is done without a sparse matrix, and one product with Jᵀ. Writes JSON with --out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from steadygrad.experiments.citation import PublishedGRU, data, neighbours

SIZES = {"cora": 64, "pubmed": 16}


def runs(name: str, size: int) -> dict[str, Callable[[], object]]:
    graph = data.graph(name)
    adjacency = neighbours(graph.edge_index, graph.nodes)
    network = PublishedGRU(adjacency, data.reduced(name, size), graph.classes)
    update, h = network.dynamics().update, network.features
    source, target = graph.edge_index
    W, V = network.cell.weight_ih.T, network.cell.weight_hh.T
    leaf = h.clone().requires_grad_()
    image = update(leaf)

    def edge_by_edge() -> Tensor:
        return network.cell(torch.zeros_like(h).index_add_(0, target, h[source]), h)

    assert torch.allclose(update(h), edge_by_edge(), atol=1e-5)
    return {
        "step": lambda: update(h),
        "nn.GRUCell": lambda: network.cell(adjacency @ h, h),
        "edge by edge": edge_by_edge,
        "products": lambda: (adjacency @ h, h @ W, h @ V),
        "sparse product": lambda: adjacency @ h,
        "VJP": lambda: torch.autograd.grad(image, leaf, h, retain_graph=True),
    }


@torch.no_grad()
def milliseconds(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Medians over rounds that take turns, so that a busy machine disturbs all alike."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(rounds + 3):
        for name, run in runs.items():
            started = time.process_time()
            run()
            if round_ >= 3:
                taken[name].append(1000 * (time.process_time() - started))
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", help="write the records as JSON to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    records = []
    print(f"GRU step, float32, one thread, CPU time; medians of {options.rounds} rounds, ratios to the products alone")
    for name, size in SIZES.items():
        took = milliseconds(runs(name, size), options.rounds)
        ratios = {what: value / took["products"] for what, value in took.items()}
        records.append({"graph": name, "size": size, "ms": took, "ratio": ratios})
        print(f"{name}, state of {size} a node")
        for what, value in took.items():
            print(f"  {what:<16}{value:>8.2f} ms {ratios[what]:>6.2f}x")
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"torch": torch.__version__, "records": records}, file, indent=1)


if __name__ == "__main__":
    main()
