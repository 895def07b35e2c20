"""What several processes cost: exchanges between two ranks, the sharded graph of the examples, and a model fitted to both.

    python -m benchmarks.cluster                  # measures (some minutes), writes cluster.json and the tables of docs/cluster.md
    python -m benchmarks.cluster --page           # the tables alone, from the record
    python -m benchmarks.cluster --only exchange  # one part: exchange, counts, pubmed, or a number of edges

Two ranks on one machine, gloo over loopback, one thread each. Times are the smallest of many where others use the machine too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORD = HERE / "cluster.json"
PAGE = HERE.parent / "docs" / "cluster.md"
EDGES = [1_000_000, 10_000_000]
Record = dict[str, Any]


def exchange() -> Record:
    """Seconds of an all-reduce and of an all-to-all between two ranks by the bytes that each rank sends."""
    import torch
    import torch.distributed as dist

    found: Record = {"all_reduce": [], "all_to_all": []}
    for size in (8, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23):
        numbers = torch.zeros(max(2, size // 4))
        out = torch.empty_like(numbers)
        for name, call in (
            ("all_reduce", lambda numbers=numbers: dist.all_reduce(numbers)),
            ("all_to_all", lambda numbers=numbers, out=out: dist.all_to_all_single(out, numbers)),
        ):
            sent = 4 * len(numbers) if name == "all_reduce" else 2 * len(numbers)
            found[name].append([sent, _smallest(call, 200 if size < 1 << 20 else 20)])
    return found


def _smallest(call: Callable[[], Any], times: int) -> float:
    seconds = math.inf
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds


def counts() -> Record:
    """All-reduces of a few numbers that a solve makes: in all for the search, and a step for every adjoint solver."""
    import torch
    import torch.distributed as dist
    from torch.distributed._functional_collectives import all_gather_single_autograd

    import steadygrad as sg

    made, plain = [0], dist.all_reduce

    def counted(*args: Any, **options: Any) -> Any:
        made[0] += 1
        return plain(*args, **options)

    dist.all_reduce = counted
    torch.manual_seed(0)
    size, here = 64, slice(32 * dist.get_rank(), 32 * dist.get_rank() + 32)
    W = torch.randn(size, size, dtype=torch.float64)
    W = (0.6 * W / torch.linalg.eigvals(W).abs().max()).requires_grad_()

    def update(h: Any) -> Any:
        return torch.tanh(W[here] @ all_gather_single_autograd(h, 0, dist.group.WORLD) + 1)

    def solved(**options: Any) -> tuple[int, int]:
        """All-reduces of the search, and of the adjoint solve."""
        made[0] = 0
        solution = sg.steady_state(update, torch.zeros(32, dtype=torch.float64), group=dist.group.WORLD, **options)
        forward, made[0] = made[0], 0
        solution.value.sum().backward()
        return forward, made[0]

    solvers = {
        "Neumann": sg.Neumann, "GMRES": sg.GMRES, "BiCGSTAB": sg.BiCGSTAB, "NormalCG": sg.NormalCG, "LSQR": sg.LSQR,
        "MINRES": sg.MINRES, "CG": sg.CG,
    }  # fmt: skip
    steps: Record = {}
    for name, solver in solvers.items():
        few, many = (solved(gradient=sg.Implicit(solver(steps=n)), on_failure="ignore")[1] for n in (5, 15))
        steps[name] = (many - few) / 10
    adjoint = solved(gradient=sg.Implicit(sg.Neumann(steps=5)))[1]
    searches: Record = {}
    for forward in (sg.Picard(), sg.Anderson(), sg.Broyden()):
        few, many = (solved(forward=type(forward)(max_steps=n, rtol=0), on_failure="ignore")[0] for n in (5, 15))
        searches[type(forward).__name__] = (many - few) / 10
    whole = sg.steady_state(update, torch.zeros(32, dtype=torch.float64), group=dist.group.WORLD)
    return {"a_step": steps, "a_forward_step": searches, "neumann_5": adjoint, "search": [solved()[0], whole.steps]}


PARTS = {"exchange": exchange, "counts": counts}


def _launch(*command: str, ranks: int, folder: str) -> list[Record]:
    """Run a script that writes rank*.json into a folder, in so many processes."""
    start = [sys.executable]
    if ranks > 1:
        start += ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        start += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    source = str(HERE.parent / "src")
    # With a fixed threshold freed tensors go back to the system at once, whatever their size: the peak is that of tensors in use.
    memory = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    paths = os.pathsep.join([source, str(HERE.parent)])
    environment = {**os.environ, **memory, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    subprocess.run([*start, *command], env=environment, check=True, timeout=3600)
    return [json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank*.json"))]


def graph(edges: int | None) -> Record:
    """The example in one process and in two."""
    found: Record = {}
    for ranks in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            size = [] if edges is None else ["--edges", str(edges)]
            command = [str(HERE.parent / "examples" / "sharded_graph.py"), *size, "--epochs", "2", "--json", folder]
            found[str(ranks)] = _launch(*command, ranks=ranks, folder=folder)
    return found


def measure(part: str) -> Record:
    """One part of the record."""
    if part in PARTS:
        with tempfile.TemporaryDirectory() as folder:
            return _launch(str(Path(__file__)), "--rank-part", part, "--folder", folder, ranks=2, folder=folder)[0]
    return graph(None if part == "pubmed" else int(part))


def run_rank(part: str, folder: str) -> None:
    """What one of the ranks does."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    found = PARTS[part]()
    Path(folder, f"rank{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--page", action="store_true", help="write the tables from the record, measure nothing")
    options.add_argument("--only", help="measure this part alone")
    options.add_argument("--rank-part", help=argparse.SUPPRESS)
    options.add_argument("--folder", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.rank_part:
        return run_rank(chosen.rank_part, chosen.folder)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if not chosen.page:
        for part in [chosen.only] if chosen.only else ["exchange", "counts", "pubmed", *map(str, EDGES)]:
            load = os.getloadavg()[0]
            record[part] = {"when": datetime.now().isoformat(timespec="seconds"), "load": load, "found": measure(part)}
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
    from benchmarks.cluster_model import write_page

    write_page(record, PAGE)


if __name__ == "__main__":
    main()
