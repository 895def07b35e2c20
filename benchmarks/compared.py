"""What a user of each library learns, cell by cell, from the records: a table for docs/speed.md and one for the README."""

from __future__ import annotations

from typing import Any

from benchmarks import store
from benchmarks.markdown import markdown, number
from benchmarks.store import Record

LIBRARY = "steadygrad"
DEFAULT_CALL = "steadygrad, default"
"""The library in peer_seconds as most will call it; the README shows its seconds."""
DOCUMENTED = {
    "hypertorch": (
        "the user solves the forward problem; RBP, CG and CG on the normal equations for the adjoint, and unrolling "
        "(README of prolearner/hypertorch, which is not on PyPI: the package of that name is another project)"
    ),
    "banax": (
        "Picard, Anderson, Broyden and a reversible iteration; BPTT, implicit, phantom and reversible gradients; ‖J‖ by a power "
        "method (README of banax 0.1.4, which needs Python 3.12)"
    ),
}
"""Libraries that do not install here, with what their own documentation says."""
CASES: dict[str, str] = {
    "adjoint stopped early": "a stopped adjoint solve (error of the gradient)",
    "forward stopped early": "a stopped forward search (error)",
    "second derivative": "second derivatives",
    "forward derivative": "forward derivatives (`jvp`)",
    "vmap of grad": "gradients of many problems by `vmap`",
    "spectral radius": "ρ(J) of a rotation, 0.9",
}
"""The cases of honesty.py as the README names them."""
STOPPED = ("adjoint stopped early", "forward stopped early")
WORDS = {
    "wrong, silently": "**silently wrong**",
    "wrong, with a warning": "warns",
    "wrong, only the result tells": "only in its result",
    "right": "right",
}
"""Verdicts as the README words them."""


def not_run() -> str:
    """The libraries that are in no table, since they do not install here."""
    said = "; ".join(f"{name}: {words}" for name, words in DOCUMENTED.items())
    return (
        f"From their documentation, since they do not install here: {said}. Neither names a warning or an estimate of the "
        "gradient's error there."
    )


def honesty(rows: list[Record]) -> str:
    """A line a library, a column a case, with the verdict and the error."""
    cases = list(dict.fromkeys(row["row"].split(": ")[0] for row in rows))
    found = {(row["figures"]["peer"], row["row"].split(": ")[0]): row["figures"] for row in rows}
    peers = list(dict.fromkeys(row["figures"]["peer"] for row in rows))

    def cell(peer: str, case: str) -> str:
        f = found.get((peer, case))
        if f is None:
            return "–"
        if "has no" in f["verdict"]:
            return "has none"  # no forward solver of its own, or no estimate
        if case == "spectral radius" and f["estimate"] is not None:
            return f"{f['verdict']} ({number(f['estimate'])} for 0.9)"
        told = f", estimated {number(f['estimate'])}" if f.get("estimate") is not None and case == STOPPED[0] else ""
        plain = f["error"] is None or f["verdict"] == "right"
        return f["verdict"] if plain else f"{f['verdict']} (error {number(f['error'])}{told})"

    table = markdown(["", *cases], [[peer, *(cell(peer, case) for case in cases)] for peer in peers])
    return f"{table}\n\n{not_run()}"


def readme(records: dict[str, Record]) -> str:
    """The README's table: a column a library, a line a case, and the seconds of the same gradient; empty without records."""
    rows = store.of("honesty", records)
    if not rows:
        return "*Not measured yet: `make bench`.*"
    found = {(row["figures"]["peer"], row["row"].split(": ")[0]): row["figures"] for row in rows}
    peers = list(dict.fromkeys(row["figures"]["peer"] for row in rows if "," not in row["figures"]["peer"]))
    versions = {name.lower(): version for name, version in rows[-1]["versions"].items()}
    head = ["", *(peer if peer == LIBRARY else f"{peer} {versions.get(peer.lower(), '')}".strip() for peer in peers)]
    lines = [[name, *(short_cell(found.get((peer, case)), case) for peer in peers)] for case, name in CASES.items()]
    lines[0][1:] = [with_estimate(cell, found.get((peer, STOPPED[0]))) for cell, peer in zip(lines[0][1:], peers, strict=True)]
    undeclared = found.get((f"{LIBRARY}, not told derivatives=2", "second derivative"))
    if undeclared is not None and undeclared["verdict"] == "refused":
        lines[2][1 + peers.index(LIBRARY)] += "; refused if not declared"
    for row in store.of("peer_seconds", records):
        times = row["figures"]["times"]
        ways = [DEFAULT_CALL if peer == LIBRARY else peer for peer in peers]
        cells = [f"×{number(times[way]['ratio'])}" if way in times else "fails" for way in ways]
        lines.append([f"seconds of the same gradient over a loop in torch by hand, {row['row'].replace('x', '×')}", *cells])
    return f"{markdown(head, lines)}\n\n{not_run()}"


def short_cell(figures: dict[str, Any] | None, case: str) -> str:
    """One cell of the README's table in a word or two, with the error where something is wrong."""
    if figures is None:
        return "–"
    verdict, error = figures["verdict"], figures["error"]
    if "has no" in verdict:
        return "has none"
    if verdict == "refused":
        return "raises" if case in STOPPED else "not possible"
    if case == "spectral radius":
        return number(figures["estimate"])
    return WORDS[verdict] if verdict == "right" else f"{WORDS[verdict]} ({number(error)})"


def with_estimate(cell: str, figures: dict[str, Any] | None) -> str:
    """The cell of a stopped adjoint solve with the library's own estimate of the error, where it gives one."""
    told = (figures or {}).get("estimate")
    return cell if told is None else cell.replace(")", f", estimated {number(told)})")
