"""What the page says of the Hopfield experiment: claims H1 to H4, a file each, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence

from steadygrad.paper.records import Record
from steadygrad.paper.report import generic
from steadygrad.paper.report.hopfield import h1, h2, h3, h4, trials
from steadygrad.paper.report.section import Section
from steadygrad.paper.report.writing import Writer

__all__ = ["section"]
READOUTS = {"as-published": "state h, L1", "corrected": "φ(bh), cross-entropy"}


def section(records: Sequence[Record]) -> Section:
    found = trials.sort(records)
    columns = {
        s.title.lower() + ("" if s in found.all else f", {s.setting['passes']:,} passes"): s.setting
        | {"seeds": s.seeds, "K": ", ".join(map(str, s.counts)) or "–", "pixel and loss": READOUTS[s.mode]}
        for s in (*found.all, *found.longer)
    }
    writer = Writer("hopfield", found, trials)
    return writer.write("Associative memory", (h1, h2, h3, h4, "fidelity"), generic.settings(columns, ("mode",)))
