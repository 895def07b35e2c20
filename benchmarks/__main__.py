"""Run the benchmarks: each in a process of its own, each row stored as it is done.

python -m benchmarks                             # everything, for the record
python -m benchmarks --quick                     # everything in about two minutes, to see that it works
python -m benchmarks --only hindsight            # one benchmark
python -m benchmarks --only hindsight/cora       # rows whose name begins so
A run that was stopped goes on where it was; --fresh measures everything again.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import BENCHMARKS, LONG, TWO_THREADS, machine, store

if TYPE_CHECKING:
    from benchmarks.frame import Row


def main() -> int:
    options = arguments()
    return measure(options) if options.child else everything(options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME[/ROW]", help="only this one (may be repeated)")
    parser.add_argument("--quick", action="store_const", dest="effort", const="quick", help="few rounds, not for the record")
    parser.add_argument("--tiny", action="store_const", dest="effort", const="tiny", help="small sizes, as the tests run it")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there already")
    parser.add_argument("--out", type=Path, default=store.RESULTS, help=f"results file (default {store.RESULTS})")
    parser.add_argument("--list", action="store_true", help="show the names and stop")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.set_defaults(effort="full")
    options = parser.parse_args()
    known = BENCHMARKS | LONG
    for wanted in options.only or []:
        if wanted.split("/")[0] not in known:
            parser.error(f"{wanted!r} is no benchmark; choose one of {', '.join(known)}.")
    return options


def everything(options: argparse.Namespace) -> int:
    """Start one process a benchmark, so that threads are set before torch is there and a crash costs one benchmark."""
    names = list(dict.fromkeys(wanted.split("/")[0] for wanted in options.only)) if options.only else list(BENCHMARKS)
    if options.list:
        print("\n".join(f"{name:<20}{about}" for name, about in (BENCHMARKS | LONG).items()))
        return 0
    started, failed = time.perf_counter(), []
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}: {(BENCHMARKS | LONG)[name]}", flush=True)
        command = [sys.executable, "-W", "ignore::FutureWarning", "-m", "benchmarks", "--child", name, *sys.argv[1:]]
        if subprocess.run(command).returncode:  # TorchOpt calls what torch has deprecated, once a product
            failed.append(name)
    print(f"{time.perf_counter() - started:.0f} s; results in {options.out}")
    if failed:
        print(f"failed: {', '.join(failed)}; the errors are above and in the results", file=sys.stderr)
    return bool(failed)


def measure(options: argparse.Namespace) -> int:
    """Measure the rows of one benchmark. A row that fails leaves its error in its record, and the others go on."""
    threads = 2 if options.child in TWO_THREADS else 1
    machine.set_threads(threads)
    import torch  # after the threads are set

    from benchmarks.frame import EFFORTS

    torch.set_num_threads(threads)
    module = importlib.import_module(f"benchmarks.{options.child}")
    done, version, failed = store.read(options.out), machine.versions()["steadygrad"], False
    for row in module.rows(EFFORTS[options.effort]):
        key = f"{options.child}/{row.name}"
        if options.only and not any(key.startswith(wanted) for wanted in options.only):
            continue
        if not options.fresh and store.is_done(done.get(key), options.effort, version):
            print(f"    {row.name}: is there", flush=True)
            continue
        record = record_of(options.child, row, options.effort, threads)
        store.put(record, options.out)
        failed |= "error" in record
    return failed


def record_of(benchmark: str, row: Row, effort: str, threads: int) -> store.Record:
    """Run a row, and say what was measured, where, with what, when and for how long."""
    print(f"    {row.name}", end="", flush=True)
    record = {
        "benchmark": benchmark,
        "row": row.name,
        "what": row.what,
        "effort": effort,
        "machine": machine.machine(threads),
        "versions": machine.versions(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    started, worked = time.perf_counter(), machine.processor_seconds()
    try:
        record["figures"] = row.run()
    except Exception as error:
        record["error"] = f"{type(error).__name__}: {error}"
        print(f": failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
    record["seconds"] = round(time.perf_counter() - started, 1)
    record["processor_seconds"] = round(machine.processor_seconds() - worked, 1)
    print(f": {record['seconds']} s", flush=True)
    return record


if __name__ == "__main__":
    sys.exit(main())
