"""Tables of wrong gradients: error, memory and seconds of all methods, and errors over the steps of an adjoint solver."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import markdown, number
from benchmarks.store import Record


def gradient_error(rows: list[Record]) -> str:
    """A table a case: error, peak and milliseconds of every method and count."""
    found: list[str] = []
    for row in rows:
        f = row["figures"]
        lines = [
            [name, number(p["error"]), number(p["states"]), number(p["ms"])]
            for name, p in sorted(f["points"].items(), key=lambda pair: pair[1]["error"])
        ]
        found.append(f"**{row['row']}** ({row['what']}; relative residual {number(f['relative_residual'])})\n")
        found.append(markdown(["method, count", "relative error", "peak, in states", "milliseconds"], lines) + "\n")
    return "\n".join(found).rstrip()


def wrong_gradient(rows: list[Record]) -> str:
    """A line a library: its error over the steps that it has, in brackets its own estimate, and whether it said so."""
    counted = [row for row in rows if "verdicts" in row["figures"]]
    counts = counted[0]["figures"]["counts"] if counted else []

    def cell(f: dict[str, Any], place: int) -> str:
        told = f["estimates"][place]
        mark = "" if f["verdicts"][place] == "right" else " silent" if "silently" in f["verdicts"][place] else " warns"
        return number(f["errors"][place]) + (f" ({number(told)})" if told is not None else "") + mark

    lines = [[row["row"], *(cell(row["figures"], place) for place in range(len(counts)))] for row in counted]
    text = markdown(["error after steps", *map(str, counts)], lines)
    for row in rows:
        if row not in counted:
            f = row["figures"]
            text += f"\n\n{row['row']}: {f['counts'][0]} products, {f['status']}, error {number(f['errors'][0])}."
    return text
