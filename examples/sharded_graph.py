"""A graph whose nodes are divided over processes: each holds its own nodes, their edges, and a copy of the neighbours it needs.

h ← tanh(0.8·mean over neighbours(h) V + x U), V scaled so that this contracts. Each step F asks the other ranks for the states of
their nodes that have edges to ours; stops, inner products and the certificate are those of the whole graph (`group=`), and
gradients of the shared weights are added up by `sum_gradients`.

    python examples/sharded_graph.py                        # Pubmed in one process; with --edges 10000000 a synthetic graph
    torchrun --nproc-per-node 2 examples/sharded_graph.py   # and in two: the same losses
"""

import argparse
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

import steadygrad as sg

WIDTH, DEGREE, BLOCKS, FAR = 16, 10, 64, 0.01  # FAR: the share of synthetic edges that lead anywhere; the others stay near


class Piece:
    """The mean over the neighbours of this rank's nodes, whose states may lie elsewhere."""

    def __init__(self, sources: Tensor, targets: Tensor, bounds: Tensor, group: Any) -> None:
        """Edges that end at nodes of this rank, `bounds[rank]` to `bounds[rank + 1]`, by numbers in the whole graph."""
        self.group, rank = group, dist.get_rank() if group else 0
        first, last = int(bounds[rank]), int(bounds[rank + 1])
        elsewhere = (sources < first) | (sources >= last)
        needed = torch.unique(sources[elsewhere])
        place = torch.where(elsewhere, last - first + torch.searchsorted(needed, sources), sources - first)
        shares = (1 / torch.bincount(targets - first).float())[targets - first]
        self.mean = sg.SparseMatrix.of_entries(targets - first, place, shares, (last - first, last - first + len(needed)))
        self.from_each = torch.histogram(needed.double(), bounds.double()).hist.long()
        self.to_each, wanted = torch.zeros_like(self.from_each), needed
        if group:  # tell the others what is needed, once
            dist.all_to_all_single(self.to_each, self.from_each)
            wanted = needed.new_empty(int(self.to_each.sum()))
            dist.all_to_all_single(wanted, needed, self.to_each.tolist(), self.from_each.tolist())
        self.sent = wanted - first

    def __call__(self, h: Tensor) -> Tensor:
        if self.group:
            asked = h.index_select(0, self.sent)
            halo = all_to_all_single_autograd(asked, self.from_each.tolist(), self.to_each.tolist(), self.group)
            h = torch.cat([h, halo])
        return self.mean @ h


def pubmed(ranks: int, rank: int) -> tuple[Tensor, ...]:
    graph = sg.datasets.pubmed()
    bounds = torch.linspace(0, graph.nodes, ranks + 1).long()
    first, last = int(bounds[rank]), int(bounds[rank + 1])
    ours = (graph.edge_index[1] >= first) & (graph.edge_index[1] < last)
    return graph.edge_index[:, ours], bounds, graph.features[first:last].clone(), graph.labels[first:last]


def synthetic(edges: int, ranks: int, rank: int) -> tuple[Tensor, ...]:
    """The piece of one rank, drawn block by block: the same graph for any number of ranks that divides BLOCKS."""
    size = edges // DEGREE // BLOCKS  # nodes a block
    bounds = torch.arange(ranks + 1) * (BLOCKS // ranks) * size
    found = list[tuple[Tensor, Tensor, Tensor]]()
    for block in range(rank * BLOCKS // ranks, (rank + 1) * BLOCKS // ranks):
        draw = torch.Generator().manual_seed(block)
        targets = torch.arange(block * size, (block + 1) * size).repeat_interleave(DEGREE)
        near = targets + torch.randint(-50, 51, targets.shape, generator=draw)
        far = torch.randint(0, BLOCKS * size, targets.shape, generator=draw)
        sources = torch.where(torch.rand(targets.shape, generator=draw) < FAR, far, near) % (BLOCKS * size)
        features = torch.randn(size, WIDTH, generator=draw)
        found.append((torch.stack([sources, targets]), features, features[:, :3].argmax(1)))
    ends, features, labels = zip(*found, strict=True)
    return torch.cat(ends, dim=1), bounds, torch.cat(features), torch.cat(labels)


def train(epochs: int, edges: int | None, group: Any) -> dict[str, Any]:
    ranks, rank = (dist.get_world_size(), dist.get_rank()) if group else (1, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends, bounds, features, labels = synthetic(edges, ranks, rank) if edges else pubmed(ranks, rank)
    piece, nodes, local_edges = Piece(*ends, bounds, group), int(bounds[-1]), ends.shape[1]
    del ends
    torch.manual_seed(0)  # the same weights on every rank
    inputs, V, readout = nn.Linear(features.shape[1], WIDTH), nn.Parameter(torch.eye(WIDTH)), nn.Linear(WIDTH, 3)
    shared = [*inputs.parameters(), V, *readout.parameters()]
    optimiser, losses, solution, calls = torch.optim.Adam(shared, lr=0.05), list[float](), None, 0
    start, busy = time.perf_counter(), time.process_time()
    for _ in range(epochs):
        x, scaled = inputs(features), V / V.abs().sum(0).max().clamp(min=1)
        solution = sg.steady_state(
            lambda h, x=x, scaled=scaled: torch.tanh(0.8 * piece(h) @ scaled + x), torch.zeros_like(x), group=group, warm=solution
        )
        loss = nn.functional.cross_entropy(readout(solution.value), labels, reduction="sum") / nodes
        optimiser.zero_grad()
        loss.backward()
        if group:
            sg.sum_gradients(shared, group)
            dist.all_reduce(loss.data)
        optimiser.step()
        losses.append(loss.item())
        calls += solution.steps + (solution.adjoint.products if solution.adjoint else 0)
    return {
        "ranks": ranks, "rank": rank, "nodes": nodes, "edges": local_edges, "losses": losses, "calls": calls,
        "seconds": time.perf_counter() - start, "busy": time.process_time() - busy, "bytes_a_call": len(piece.sent) * WIDTH * 4,
        "peak_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }  # fmt: skip


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--edges", type=int, help="a synthetic graph of so many edges instead of Pubmed")
    options.add_argument("--epochs", type=int, default=5)
    options.add_argument("--json", metavar="FOLDER", help="write what was measured there, one file a rank")
    chosen = options.parse_args()
    if together := "RANK" in os.environ:
        dist.init_process_group("gloo")
    found = train(chosen.epochs, chosen.edges, dist.group.WORLD if together else None)
    print("rank {rank} of {ranks}: {edges:,} edges, {peak_mb:.0f} MB, {bytes_a_call:,} bytes sent a call of F".format(**found))
    print(f"  losses {found['losses']}, {1e3 * found['seconds'] / found['calls']:.1f} ms a call")
    if chosen.json:
        Path(chosen.json, f"rank{found['rank']}.json").write_text(json.dumps(found))
    if together:
        dist.barrier()  # no rank leaves while another still needs it
        dist.destroy_process_group()
