"""From measured pieces to a cluster: fits to the record of benchmarks/cluster.py, what they foretell, the page's tables."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

Record = dict[str, Any]
WIDTH, DEGREE, FAR, NEAR, FLOAT = 16, 10, 0.01, 50, 4
"""Of the synthetic graph in examples/sharded_graph.py: numbers a node, edges a node, share of far edges, reach of the others."""
LARGE = 10_000_000
BILLION, RANKS = 1_000_000_000, 64


@dataclass(frozen=True)
class Link:
    """An exchange takes `latency` + bytes / `bandwidth` seconds."""

    latency: float
    bandwidth: float

    @classmethod
    def fitted(cls, points: list[list[float]]) -> Link:
        """Least squares in relative error over (bytes, seconds)."""
        size, seconds = numpy.array(points).T
        design = numpy.stack([1 / seconds, size / seconds], axis=1)
        latency, slope = numpy.linalg.lstsq(design, numpy.ones(len(size)), rcond=None)[0]
        return cls(float(latency), float(1 / slope))

    def seconds(self, messages: float, size: float) -> float:
        return messages * self.latency + size / self.bandwidth


ETHERNET = Link(latency=50e-6, bandwidth=25e9 / 8)
"""Assumed, not measured: TCP over 25 Gbit/s Ethernet."""


@dataclass(frozen=True)
class Model:
    """Seconds of one call of F, or product with J, on a graph like the synthetic one."""

    edge: float
    """Processor seconds an edge, state of WIDTH numbers a node."""
    megabytes_an_edge: float
    looks: float
    """All-reduces a call."""
    reduce: Link
    halo: Link

    @classmethod
    def of(cls, record: Record) -> Model:
        (alone,) = record[str(LARGE)]["found"]["1"]
        made, steps = record["counts"]["found"]["search"]
        points = record["exchange"]["found"]
        return cls(
            edge=alone["busy"] / alone["calls"] / alone["edges"],
            megabytes_an_edge=alone["peak_mb"] / alone["edges"],
            looks=made / steps,
            reduce=Link.fitted(points["all_reduce"]),
            halo=Link.fitted(points["all_to_all"]),
        )

    def on(self, link: Link) -> Model:
        """The same with another network for both kinds of exchange."""
        return Model(self.edge, self.megabytes_an_edge, self.looks, link, link)

    def parts(self, edges: int, ranks: int) -> dict[str, float]:
        """Seconds of computing, of the halo and of all-reduces in one call, bytes that a rank sends, and its megabytes."""
        size = halo_bytes(edges, ranks)
        return {
            "compute": self.edge * edges / ranks,
            "halo": self.halo.seconds(ranks - 1, size) if ranks > 1 else 0.0,
            "reduce": self.looks * self.reduce.seconds(2 * math.log2(ranks), 8) if ranks > 1 else 0.0,
            "bytes": size,
            "megabytes": self.megabytes_an_edge * edges / ranks,
        }


def halo_bytes(edges: int, ranks: int) -> float:
    """What a rank sends in a call: the ends of far edges that lie elsewhere, each node once, and near ones at both borders."""
    nodes = edges / DEGREE
    elsewhere = nodes * (1 - 1 / ranks)
    far = elsewhere * -math.expm1(-edges / ranks * FAR / nodes)
    return (far + (2 * NEAR if ranks > 1 else 0)) * WIDTH * FLOAT


def write_page(record: Record, page: Path) -> None:
    """Put the tables between their marks on the page."""
    text = page.read_text()
    for name, table in tables(record).items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        if not mark.search(text):
            raise ValueError(f"{page} has no place for the table {name}: <!-- {name} --> … <!-- end -->.")
        text = mark.sub(lambda found, table=table: found[1] + table + found[2], text)
    page.write_text(text)


def tables(record: Record) -> dict[str, str]:
    """The tables of the page by name, in Markdown."""
    model = Model.of(record)
    return {
        "gradients": _gradients(model),
        "exchange": _exchange(model),
        "counts": _counts(record),
        "graphs": _graphs(record),
        "model": _model(model, record),
    }


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _gradients(model: Model) -> str:
    """What DDP exchanges a step: an all-reduce of all gradients; in a ring every rank sends twice its share to each other one."""
    rows: list[list[str]] = []
    for count in (10**6, 10**7, 10**8):
        size = FLOAT * count
        ring = ETHERNET.seconds(2 * (RANKS - 1), 2 * (RANKS - 1) / RANKS * size)
        rows.append(
            [f"{count:,}", f"{size / 1e6:,.0f} MB", f"{1e3 * model.reduce.seconds(1, size):,.0f} ms", f"{1e3 * ring:,.0f} ms"]
        )
    return _table(["parameters, float32", "gradients", "two ranks, loopback", f"{RANKS} ranks, 25 Gbit/s, 50 µs"], rows)


def _exchange(model: Model) -> str:
    rows = [
        [name, f"{1e6 * link.latency:.0f} µs", f"{link.bandwidth / 1e9:.2f} GB/s"]
        for name, link in (("all-reduce", model.reduce), ("all-to-all", model.halo))
    ]
    return _table(["exchange, two ranks", "latency", "bandwidth a rank"], rows)


def _counts(record: Record) -> str:
    found = record["counts"]["found"]
    made, steps = found["search"]
    rows = [[f"search by {name}, exact count", f"{each:.1f}"] for name, each in found["a_forward_step"].items()]
    rows.append([f"search by Picard to 1e-5 ({steps} steps)", f"{made / steps:.1f}"])
    rows += [[f"adjoint by {name}", f"{each:.1f}"] for name, each in found["a_step"].items()]
    return _table(["step of", "all-reduces"], rows)


def _graphs(record: Record) -> str:
    rows: list[list[str]] = []
    for name in ("pubmed", *sorted((key for key in record if key.isdigit()), key=int)):
        found = record[name]["found"]
        for ranks in ("1", "2"):
            parts = found[ranks]
            worst = _worst(parts)
            title = "Pubmed" if name == "pubmed" else f"{int(name):,} edges"
            rows.append([
                title, ranks, f"{worst['peak_mb']:,.0f} MB", f"{1e3 * worst['busy'] / worst['calls']:,.0f} ms",
                f"{1e3 * worst['seconds'] / worst['calls']:,.0f} ms", f"{worst['bytes_a_call']:,}",
                f"{parts[0]['losses'][-1]:.6f}",
            ])  # fmt: skip
    head = ["graph", "processes", "memory a process", "processor time a call", "wall time a call", "bytes sent a call", "loss"]
    return _table(head, rows)


def _model(model: Model, record: Record) -> str:
    measured = {ranks: _worst(record[str(LARGE)]["found"][str(ranks)]) for ranks in (1, 2)}
    cases = [
        (LARGE, 1, "loopback", model),
        (LARGE, 2, "loopback", model),
        (BILLION, RANKS, "loopback's figures", model),
        (BILLION, RANKS, "25 Gbit/s, 50 µs", model.on(ETHERNET)),
    ]
    rows: list[list[str]] = []
    for edges, ranks, network, used in cases:
        p = used.parts(edges, ranks)
        whole = p["compute"] + p["halo"] + p["reduce"]
        known = measured[ranks] if edges == LARGE else None
        rows.append([
            f"{edges:,}", str(ranks), network, f"{p['megabytes'] / 1e3:.1f} GB", f"{p['bytes'] / 1e6:.2f} MB",
            *(f"{1e3 * p[key]:,.1f} ms" for key in ("compute", "halo", "reduce")), f"{1e3 * whole:,.0f} ms",
            "–" if known is None else f"{1e3 * known['busy'] / known['calls']:,.0f} ms",
        ])  # fmt: skip
    head = ["edges", "ranks", "network", "memory a rank", "sent a call", "computing", "halo", "all-reduces", "a call"]
    return _table([*head, "measured (processor time)"], rows)


def _worst(parts: list[Record]) -> Record:
    """The largest figures of all ranks."""
    return {key: max(part[key] for part in parts) for key in ("peak_mb", "busy", "seconds", "bytes_a_call", "calls")}
